a {{ .name -}}   

 b
