// Writes the outputs of forms.json, and NAME.expected for each NAME.tpl of kube2lb/, with Go's own text/template:
//
//	cd tests/data/go-templates && go run expected.go
//
// The data are cluster.json, as the records that kube2lb's document "cluster information schema" describes, with functions
// of the same names as kube2lb's.
package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

type Port struct {
	IP       net.IP
	Port     int32
	Mode     string
	Protocol string
}

func (p Port) String() string {
	return fmt.Sprintf("%s_%d_%s_%s", hex.EncodeToString(p.IP.To4()), p.Port, p.Protocol, p.Mode)
}

type Endpoint struct {
	Name string
	IP   net.IP
	Port int32
}

func (e Endpoint) String() string { return fmt.Sprintf("%s:%d", e.IP, e.Port) }

type Service struct {
	Name      string
	Namespace string
	Port      Port
	Endpoints []Endpoint
	NodePort  int32
	External  []string
	Timeout   int
}

func (s Service) String() string {
	return fmt.Sprintf("%s_%s_%d_%s_%s", s.Name, s.Namespace, s.Port.Port, s.Port.Protocol, s.Port.Mode)
}

type ClusterInformation struct {
	Nodes    []string
	Services []Service
	Ports    []Port
	Domain   string
}

type ServerName string

func (n ServerName) IsRegexp() bool { return strings.HasPrefix(string(n), "~") }
func (n ServerName) Regexp() string { return strings.TrimPrefix(string(n), "~") }

func serverNames(service Service, domain string) []ServerName {
	names := []ServerName{ServerName(service.Name + "." + service.Namespace + ".svc." + domain)}
	for _, name := range service.External {
		names = append(names, ServerName(name))
	}
	return names
}

var functions = template.FuncMap{
	"ServerNames": serverNames,
	"EscapeNode":  strings.NewReplacer(".", "_", ":", "_").Replace,
	"IntRange": func(n, initial, step int) []int {
		values := []int{}
		for i := 0; i < n; i++ {
			values = append(values, initial+i*step)
		}
		return values
	},
	"Add": func(values ...int) int {
		sum := 0
		for _, value := range values {
			sum += value
		}
		return sum
	},
	"ToLower": strings.ToLower,
	"ToUpper": strings.ToUpper,
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(name string, text string) string {
	file, err := os.Open("cluster.json")
	check(err)
	defer file.Close()
	var cluster ClusterInformation
	check(json.NewDecoder(file).Decode(&cluster))
	parsed, err := template.New(name).Funcs(functions).Parse(text)
	check(err)
	var out bytes.Buffer
	check(parsed.Execute(&out, cluster))
	return out.String()
}

func main() {
	text, err := os.ReadFile("forms.json")
	check(err)
	var forms [][2]string
	check(json.Unmarshal(text, &forms))
	out := bytes.NewBufferString("[\n")
	for index, form := range forms {
		if index > 0 {
			out.WriteString(",\n")
		}
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		check(encoder.Encode([]string{form[0], render(form[0], form[0])}))
		out.Truncate(out.Len() - 1)
	}
	out.WriteString("\n]\n")
	check(os.WriteFile("forms.json", out.Bytes(), 0o644))
	paths, _ := filepath.Glob("kube2lb/*.tpl")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		check(os.WriteFile(strings.TrimSuffix(path, ".tpl")+".expected", []byte(render(filepath.Base(path), string(text))), 0o644))
	}
}
