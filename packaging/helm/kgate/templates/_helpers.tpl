{{- define "kgate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- define "kgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "kgate.labels" -}}
{{ include "kgate.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "kgate.config" -}}
node:
  data_dir: /var/lib/kgate
  admin_token_file: /etc/kgate/keys/admin.token
listen:
  admin: ":9080"
cluster:
  {{- if gt (int .Values.replicas) 1 }}
  join: ["{{ include "kgate.name" . }}-peers:7080"]
  bootstrap_expect: {{ .Values.replicas }}
  {{- end }}
  lease: {{ .Values.lease }}
  key_file: /etc/kgate/keys/cluster.key
{{ toYaml .Values.config }}
{{- end }}
{{- /* Helm parses no durations, but adds them to dates. */ -}}
{{- define "kgate.seconds" -}}
{{- $zero := toDate "2006-01-02" "2000-01-01" -}}
{{- sub (mustDateModify . $zero | unixEpoch) (unixEpoch $zero) -}}
{{- end }}
{{- /* drain.timeout, as kgate serve finds it */ -}}
{{- define "kgate.drainSeconds" -}}
{{- $timeout := (.Values.config.drain).timeout | default "auto" | toString -}}
{{- $longest := 30 -}}
{{- range .Values.config.pools -}}
{{- $hold := include "kgate.seconds" ((.hold).max | default "30m" | toString) | int -}}
{{- $longest = max $longest $hold -}}
{{- end -}}
{{- if eq $timeout "auto" }}{{ min $longest 1800 }}{{ else }}{{ include "kgate.seconds" $timeout }}{{ end -}}
{{- end }}
