"""The app of `helm test`: one job type, run by a worker of the Queue that the test applies."""

from dockwork import App

app = App("selftest")


@app.job()
async def double(number: int) -> int:
    return 2 * number
