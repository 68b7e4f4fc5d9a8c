{{- define "palimpsest.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "palimpsest.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "palimpsest.labels" -}}
{{ include "palimpsest.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "palimpsest.secret" -}}
{{ .Values.auth.existingSecret | default (include "palimpsest.name" .) }}
{{- end -}}

{{/* Host of the pod with an index, behind the headless service. */}}
{{- define "palimpsest.host" -}}
{{ $name := include "palimpsest.name" .root -}}
{{ printf "%s-%v.%s-nodes.%s.svc" $name .index $name .root.Release.Namespace }}
{{- end -}}

{{- define "palimpsest.members" -}}
{{- $root := . -}}
{{- $members := list -}}
{{- range $index := until (int .Values.replicas) -}}
{{- $host := include "palimpsest.host" (dict "root" $root "index" $index) -}}
{{- $members = append $members (printf "%d=%s:6379" (add1 $index) (trim $host)) -}}
{{- end -}}
{{ join "," $members }}
{{- end -}}
