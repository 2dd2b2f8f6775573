{{- define "penstock.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "penstock.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "penstock.selector" . }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "penstock.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "penstock.podSecurity" -}}
serviceAccountName: {{ include "penstock.serviceAccount" . }}
# Variables of Services, such as PENSTOCK_PORT, would be read as settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "penstock.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - secretRef: {name: {{ required "existingSecret is required: a Secret with PENSTOCK_POSTGRES_URL and the other secret settings" .Values.existingSecret | quote }}}
{{- end }}

{{- define "penstock.settings" -}}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "penstock.mounts" -}}
- {name: home, mountPath: /var/lib/penstock}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "penstock.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "penstock.allowedHosts" -}}
{{- $name := printf "%s-broker" (include "penstock.name" .) }}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) }}
{{- if and .Values.ingress.enabled .Values.ingress.host }}{{ $hosts = append $hosts .Values.ingress.host }}{{ end }}
{{- concat $hosts .Values.broker.allowedHosts | uniq | join "," }}
{{- end }}
