"""An example application: pictures become thumbnails."""
