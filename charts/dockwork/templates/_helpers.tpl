{{- define "dockwork.fullname" -}}
{{- if contains "dockwork" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-dockwork" (.Release.Name | trunc 31 | trimSuffix "-") -}}
{{- end -}}
{{- end }}

{{- /* Cluster-wide objects carry the namespace too: releases of one name in two namespaces must not share them. */ -}}
{{- define "dockwork.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "dockwork.fullname" .) -}}
{{- end }}

{{- define "dockwork.leaseName" -}}
{{- printf "%s-operator" (include "dockwork.fullname" .) -}}
{{- end }}

{{- define "dockwork.redisName" -}}
{{- printf "%s-redis" (include "dockwork.fullname" .) -}}
{{- end }}

{{- /* The Secret with the password of the chart's own Redis, in the release's namespace. */ -}}
{{- define "dockwork.redisPasswordSecret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-password" (include "dockwork.redisName" .)) -}}
{{- end }}

{{- define "dockwork.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "dockwork.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{- define "dockwork.labels" -}}
app.kubernetes.io/name: dockwork
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* (list . "operator") -> what selects the pods of a component. */ -}}
{{- define "dockwork.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: dockwork
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* (list . .Values.image) -> an image reference; a digest wins over a tag. */ -}}
{{- define "dockwork.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- /* A development version is published nowhere: its images are those that `make images` builds. */ -}}
{{- $version := ternary "dev" $root.Chart.AppVersion (contains "dev" $root.Chart.AppVersion) -}}
{{- printf "%s:%s" $image.repository ($image.tag | default $version) -}}
{{- end -}}
{{- end }}

{{- define "dockwork.clusterMode" -}}
{{- if has "*" .Values.watchNamespaces }}true{{ end -}}
{{- end }}

{{- /* The watched namespaces by name, as a JSON list; of cluster mode the release's own only. */ -}}
{{- define "dockwork.namespaces" -}}
{{- if or (include "dockwork.clusterMode" .) (not .Values.watchNamespaces) -}}
{{- list .Release.Namespace | toJson -}}
{{- else -}}
{{- .Values.watchNamespaces | uniq | toJson -}}
{{- end -}}
{{- end }}

{{- /* Secrets and ConfigMaps that the operator may read, as a JSON list. */ -}}
{{- define "dockwork.secretNames" -}}
{{- concat (list .Values.defaultRedis.secretName) .Values.rbac.secretNames | uniq | toJson -}}
{{- end }}

{{- define "dockwork.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "dockwork.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: ["ALL"]}
{{- end }}
