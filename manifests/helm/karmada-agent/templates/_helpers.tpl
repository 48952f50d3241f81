{{- define "karmada-agent.labels" -}}
app: karmada-agent
app.kubernetes.io/name: karmada-agent
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "karmada-agent.secret" -}}
{{- .Values.hub.existingSecret | default (empty .Values.hub.address | ternary "karmada-kubeconfig" "karmada-agent-token") }}
{{- end }}

{{- define "karmada-agent.check" -}}
{{- if not (and (le (len .Values.clusterName) 48) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .Values.clusterName)) }}
{{- fail (printf "clusterName %q: at most 48 of a-z, 0-9 and '-', with a letter or digit at both ends" .Values.clusterName) }}
{{- end }}
{{- if .Values.hub.address }}
{{- if or (not .Values.hub.caCertHash) (and (not .Values.hub.token) (not .Values.hub.existingSecret)) }}
{{- fail "hub.address wants hub.token and hub.caCertHash: karmada-hub token create --cluster NAME" }}
{{- end }}
{{- else if and (not .Values.hub.kubeconfig) (not .Values.hub.existingSecret) }}
{{- fail "hub.address, hub.token and hub.caCertHash are needed: karmada-hub token create --cluster NAME" }}
{{- end }}
{{- end }}
