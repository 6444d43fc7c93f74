{{- /* An own load balancer with ACLs, one frontend for each port. */ -}}
{{- $services := .Services -}}
{{- $nodes := .Nodes -}}
{{- $domain := .Domain -}}
global
    maxconn 4096
    stats socket /run/haproxy/admin.sock mode 600 level admin

defaults
    timeout connect 5s
    timeout client 1m
    timeout server 1m
{{ range $port := .Ports }}{{ if ne $port.Protocol "udp" }}
frontend port_{{ $port }}
    bind {{ $port.IP }}:{{ $port.Port }}
    mode {{ $port.Mode }}
{{- range $service := $services }}
{{- if and (eq $service.Port.Port $port.Port) (eq $service.Port.Protocol $port.Protocol) }}
{{- $label := $service.String }}
{{- if eq $port.Mode "http" }}
{{- range $name := ServerNames $service $domain }}
{{- if $name.IsRegexp }}
    acl svc_{{ $label }} hdr_reg(host) {{ $name.Regexp }}
{{- else }}
    acl svc_{{ $label }} hdr(host),host_only -i {{ $name }}
{{- end }}
{{- end }}
    use_backend be_{{ $label }} if svc_{{ $label }}
{{- else }}
    default_backend be_{{ $label }}
{{- end }}
{{- end }}
{{- end }}
{{ end }}{{ end }}
{{- range $i, $service := $services }}{{ if ne $service.Port.Protocol "udp" }}
backend be_{{ $service }}
    mode {{ $service.Port.Mode }}
    balance leastconn
{{- if gt $service.Timeout 0 }}
    timeout server {{ $service.Timeout }}
{{- end }}
{{- range $service.Endpoints }}
    server {{ EscapeNode .Name }} {{ .IP }}:{{ .Port }} check
{{- else }}
    # no endpoint of {{ $service.Namespace }}/{{ $service.Name }} is ready
{{- end }}
{{ end }}{{ end }}