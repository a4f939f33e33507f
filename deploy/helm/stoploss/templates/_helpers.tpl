{{- define "stoploss.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "stoploss.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "stoploss.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.mode }}
{{- end }}

{{- define "stoploss.tokens" -}}
{{- if .Values.tokens.existingSecret }}{{ .Values.tokens.existingSecret }}{{ else }}{{ include "stoploss.name" . }}-tokens{{ end }}
{{- end }}

{{- define "stoploss.claim" -}}
{{- if .Values.state.existingClaim }}{{ .Values.state.existingClaim }}{{ else }}{{ include "stoploss.name" . }}-state{{ end }}
{{- end }}

{{- define "stoploss.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "stoploss.checked" -}}
{{- if not (has .Values.mode (list "centre" "node")) }}{{ fail (printf "mode %q is not known; use centre or node" .Values.mode) }}{{ end }}
{{- if not (hasKey .Values.policies "policies.yaml") }}{{ fail "policies has no file policies.yaml" }}{{ end }}
{{- if and (eq .Values.mode "centre") (not .Values.tokens.existingSecret) (not .Values.tokens.file) }}{{ fail "the API listens for the cluster, which needs tokens: set tokens.existingSecret, or tokens.file" }}{{ end }}
{{- range .Values.rights.actions }}
{{- if not (has . (list "terminate" "downscale" "release" "resume")) }}{{ fail (printf "rights.actions: %q asks nothing of the cluster; use terminate, downscale, release, resume" .) }}{{ end }}
{{- end }}
{{- end }}

{{- define "stoploss.rules" -}}
{{- $rights := .Files.Get "files/rights.yaml" | fromYaml }}
{{- if .Values.rights.collector }}
{{ toYaml $rights.collector }}
{{- end }}
{{- if .Values.rights.actions }}
{{ toYaml $rights.read }}
{{- end }}
{{- range .Values.rights.actions }}
{{ toYaml (index $rights .) }}
{{- end }}
{{- end }}
