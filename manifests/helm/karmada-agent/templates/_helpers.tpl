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

{{- define "karmada-agent.tunnel-ca" -}}
{{- with .Values.tunnel.ca }}
{{- if .secret }}
secret:
  secretName: {{ .secret | quote }}
  defaultMode: 288 # 0440
  items: [{key: {{ .key | quote }}, path: ca.crt}]
{{- else if or .pem .configMap }}
configMap:
  name: {{ .configMap | default "karmada-agent-tunnel-ca" | quote }}
  items: [{key: {{ empty .configMap | ternary "ca.crt" .key | quote }}, path: ca.crt}]
{{- end }}
{{- end }}
{{- end }}

{{- define "karmada-agent.narrow" -}}
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: {{ concat (list "kube-system") .Values.namespaces | toJson }}
  verbs: [get]
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list]
- apiGroups: [apiregistration.k8s.io]
  resources: [apiservices]
  verbs: [list]
- nonResourceURLs: [/healthz, /livez, /readyz, /version, /api, "/api/*", /apis, "/apis/*"]
  verbs: [get]
{{- end }}

{{- define "karmada-agent.check" -}}
{{- if not (and (le (len .Values.clusterName) 48) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .Values.clusterName)) }}
{{- fail (printf "clusterName %q: at most 48 of a-z, 0-9 and '-', with a letter or digit at both ends" .Values.clusterName) }}
{{- end }}
{{- if not (has (toString .Values.tunnel.mode) (list "off" "read-only" "full")) }}
{{- fail (printf "tunnel.mode %v: off, read-only or full, in quotes" .Values.tunnel.mode) }}
{{- end }}
{{- with .Values.tunnel }}
{{- $cas := compact (list (.ca).pem (.ca).configMap (.ca).secret) }}
{{- if gt (len $cas) 1 }}
{{- fail "tunnel.ca: one of pem, configMap and secret" }}
{{- end }}
{{- if and $cas (not .server) }}
{{- fail "tunnel.ca is for tunnel.server" }}
{{- end }}
{{- if and .server (eq .mode "off") }}
{{- fail "tunnel.server wants tunnel.mode read-only or full" }}
{{- end }}
{{- end }}
{{- if not (has (toString .Values.upgrade) (list "off" "windows" "on")) }}
{{- fail (printf "upgrade %v: off, windows or on, in quotes" .Values.upgrade) }}
{{- end }}
{{- range .Values.namespaces }}
{{- if not (and (le (len .) 63) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .)) }}
{{- fail (printf "namespaces: %q is no name of a namespace" .) }}
{{- end }}
{{- end }}
{{- if and .Values.rbac.rules .Values.rbac.existingClusterRole }}
{{- fail "rbac.rules and rbac.existingClusterRole: one of both" }}
{{- end }}
{{- if .Values.hub.address }}
{{- if or (not .Values.hub.caCertHash) (and (not .Values.hub.token) (not .Values.hub.existingSecret)) }}
{{- fail "hub.address wants hub.token and hub.caCertHash: karmada-hub token create --cluster NAME" }}
{{- end }}
{{- else if and (not .Values.hub.kubeconfig) (not .Values.hub.existingSecret) }}
{{- fail "hub.address, hub.token and hub.caCertHash are needed: karmada-hub token create --cluster NAME" }}
{{- end }}
{{- end }}
