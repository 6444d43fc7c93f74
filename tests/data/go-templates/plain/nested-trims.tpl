{{- range .words -}}
  {{- if eq . "a" -}}
   a
  {{- else }}
   not {{ . -}}
  {{ end -}}
{{- end -}}

 end
