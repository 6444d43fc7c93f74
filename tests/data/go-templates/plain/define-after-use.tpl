{{ template "later" .name }}
{{- define "later" -}}
  later {{ . }}
{{- end -}}
