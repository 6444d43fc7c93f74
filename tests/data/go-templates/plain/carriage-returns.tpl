a
b{{ .name }}
{{- .n -}}
 c
