{{ $all := .Services -}}
{{ $zone := .Domain -}}
{{ $processes := 1 -}}
{{ $threads := 2 -}}
global
	maxconn 2048
	nbproc {{ $processes }}
	nbthread {{ $threads }}
{{- range $at, $first := IntRange $processes 1 $threads }}
	cpu-map auto:{{ Add $at 1 }}/1-{{ $threads }} {{ Add $first -1 }}-{{ Add $first $threads -2 }}
	stats socket /run/haproxy/s{{ Add $at 1 }} process {{ Add $at 1 }} mode 600 level admin
{{- end }}


defaults
	mode       http
	http-reuse safe
	timeout connect 2s
	timeout client  90s
	timeout server  90s

{{ range $at, $listener := .Ports }}{{ if ne $listener.Protocol "udp" }}
frontend listen_{{ $listener }}
	bind {{ $listener.IP }}:{{ $listener.Port }}
	maxconn 1024
{{- if eq $listener.Mode "http" }}
	option forwardfor if-none
{{- end }}
{{- range $at, $one := $all }}
{{- if eq $one.Port.String $listener.String }}
{{- if eq $listener.Mode "http" }}
	{{ range $host := ServerNames $one $zone }}
	{{- if $host.IsRegexp }}
	acl is_{{ $one }} hdr_reg(host) {{ $host.Regexp }}
	{{- else }}
	acl is_{{ $one }} hdr_dom(host) -i {{ $host }}
	{{- end }}
	{{- end }}
	use_backend to_{{ $one }} if is_{{ $one }}
{{- end }}
{{- if eq $listener.Mode "tcp" }}
	mode   tcp

	use_backend to_{{ $one }}
{{- end }}
{{- end }}
{{- end }}
{{ end }}{{ end }}

{{- range $at, $one := $all }}{{ if ne $one.Port.Protocol "udp" }}
backend to_{{ $one }}
	balance leastconn
{{- if eq $one.Port.Mode "tcp" }}
	mode   tcp
{{- end }}
{{- if gt $one.Timeout 0 }}
	timeout server {{ $one.Timeout }}
{{- end }}
	{{ range $at, $endpoint := $one.Endpoints }}
	server {{ EscapeNode $endpoint.Name }} {{ $endpoint }} maxconn 100 check inter 5s downinter 10s slowstart 60s{{ end }}
{{ end }}{{ end }}
