{{- define "karmada-hub.labels" -}}
app: karmada-hub
app.kubernetes.io/name: karmada-hub
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
