variable "nodes" {
  description = "The load balancers, in the order in which they shall hold the floating addresses. addresses: their own, at most one of each family. health_check_id: of Route 53, for the node's public address. dns_address, dns_address6: what names point at, for dns.address_source fixed."
  type = list(object({
    name            = string
    addresses       = list(string)
    health_check_id = optional(string, "")
    dns_address     = optional(string, "")
    dns_address6    = optional(string, "")
  }))

  validation {
    condition     = length(var.nodes) >= 1 && length(var.nodes) <= 40
    error_message = "There must be 1 to 40 nodes."
  }
  validation {
    condition     = alltrue([for node in var.nodes : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", node.name))])
    error_message = "Each node needs a host name without dots: lower case letters, digits and '-'."
  }
  validation {
    condition     = length(distinct(var.nodes[*].name)) == length(var.nodes)
    error_message = "Two nodes have the same name."
  }
  validation {
    condition     = alltrue([for address in flatten(var.nodes[*].addresses) : can(cidrhost("${address}/${strcontains(address, ":") ? 128 : 32}", 0))])
    error_message = "The addresses of a node are IP addresses without a prefix, like 192.0.2.11 or 2001:db8::11."
  }
  validation {
    condition     = length(distinct(flatten(var.nodes[*].addresses))) == length(flatten(var.nodes[*].addresses))
    error_message = "Two nodes have the same address."
  }
  validation {
    condition = alltrue([for node in var.nodes :
      length([for address in node.addresses : address if strcontains(address, ":")]) <= 1 &&
      length([for address in node.addresses : address if !strcontains(address, ":")]) <= 1
    ])
    error_message = "A node has at most one address of each family."
  }
}

variable "kubernetes" {
  description = "API servers in the order in which they are tried, and the CA that signed their certificates (PEM, no key). cluster: a name for logs and templates."
  type = object({
    api_servers = list(string)
    ca_pem      = string
    cluster     = optional(string, "")
  })

  validation {
    condition     = length(var.kubernetes.api_servers) > 0 && alltrue([for url in var.kubernetes.api_servers : can(regex("^https://[^/@\\s]+/?$", url))])
    error_message = "Give at least one API server, as https://HOST:PORT, without a password or path."
  }
  validation {
    condition     = startswith(trimspace(var.kubernetes.ca_pem), "-----BEGIN CERTIFICATE-----")
    error_message = "kubernetes.ca_pem is the text of certificates in PEM form."
  }
  validation {
    condition     = !strcontains(var.kubernetes.ca_pem, "PRIVATE KEY")
    error_message = "kubernetes.ca_pem holds a private key: user data can be read by everybody on the machine, and by whoever may look at it in the cloud."
  }
}

variable "credentials" {
  description = "How pyconfd logs in to the API servers, by reference only: the path of a file with a token that something else puts on the machine, or the path of an encrypted systemd credential in /etc/credstore.encrypted, or the paths of a client certificate and its key. None: fill in later."
  type = object({
    token_file           = optional(string, "")
    encrypted_credential = optional(string, "")
    certificate_file     = optional(string, "")
    key_file             = optional(string, "")
  })
  default = {}

  validation {
    condition     = alltrue([for path in values(var.credentials) : path == "" || can(regex("^/[^\\s]+$", path))])
    error_message = "credentials are absolute paths on the machine, never the secret itself."
  }
  validation {
    condition     = can(regex("^(/etc/credstore\\.encrypted/[A-Za-z0-9._-]+)?$", var.credentials.encrypted_credential))
    error_message = "credentials.encrypted_credential is a file in /etc/credstore.encrypted, where systemd looks for it."
  }
  validation {
    condition     = length([for path in [var.credentials.token_file, var.credentials.encrypted_credential, var.credentials.certificate_file] : path if path != ""]) <= 1
    error_message = "Give one of token_file, encrypted_credential and certificate_file."
  }
  validation {
    condition     = (var.credentials.certificate_file == "") == (var.credentials.key_file == "")
    error_message = "certificate_file and key_file belong together."
  }
}

variable "presets" {
  description = "Readings of the cluster, the first one first; auto is domains, Ingresses, the Gateway API and LoadBalancer Services."
  type        = list(string)
  default     = ["auto"]

  validation {
    condition     = length(var.presets) > 0 && length(setsubtract(var.presets, ["auto", "domains", "ingress", "gateway", "loadbalancer", "kube2lb", "kubefigurator", "configmap", "hosts"])) == 0
    error_message = "presets are auto, domains, ingress, gateway, loadbalancer, kube2lb, kubefigurator, configmap and hosts."
  }
}

variable "backend_target" {
  description = "Where traffic goes: pod (their addresses must be routed to the nodes) or node (node ports)."
  type        = string
  default     = "pod"

  validation {
    condition     = contains(["pod", "node"], var.backend_target)
    error_message = "backend_target is pod or node."
  }
}

variable "profile" {
  description = "How soon a silent node is replaced: safe, fast, or cloud, where virtual machines pause while they migrate."
  type        = string
  default     = "cloud"

  validation {
    condition     = contains(["safe", "fast", "cloud"], var.profile)
    error_message = "profile is safe, fast or cloud."
  }
}

variable "vip" {
  description = "The floating addresses with their prefixes; null for none. virtual_router_id: nobody else's on this network. ports: haproxy must listen on these, or the node gives the address away."
  type = object({
    interface         = string
    virtual_router_id = number
    addresses         = list(string)
    ports             = optional(list(string), ["80", "443"])
  })
  default = null

  validation {
    condition     = var.vip == null || try(var.vip.virtual_router_id >= 1 && var.vip.virtual_router_id <= 255 && floor(var.vip.virtual_router_id) == var.vip.virtual_router_id, false)
    error_message = "vip.virtual_router_id is a whole number from 1 to 255."
  }
  validation {
    condition     = var.vip == null || try(length(var.vip.addresses) > 0 && alltrue([for address in var.vip.addresses : can(cidrhost(address, 0))]), false)
    error_message = "vip.addresses are addresses with their prefixes, like 192.0.2.10/24 or 2001:db8::10/64."
  }
  validation {
    condition     = var.vip == null || can(regex("^[^\\s/:\"{}]{1,15}$", var.vip.interface))
    error_message = "vip.interface is the name of a network interface, like ens5."
  }
  validation {
    condition     = var.vip == null || length(setintersection([for address in try(var.vip.addresses, []) : split("/", address)[0]], flatten(var.nodes[*].addresses))) == 0
    error_message = "A floating address is also a node's own address."
  }
  validation {
    condition     = var.vip == null || length(var.nodes) >= 2
    error_message = "A floating address needs at least two nodes."
  }
}

variable "dns" {
  description = "Names in Route 53 that follow the nodes; null for none. Somebody has to take out a node that died: health_check_id for each node, or reaper."
  type = object({
    names          = list(string)
    owner          = string
    zone_id        = optional(string, "")
    private        = optional(bool, false)
    mode           = optional(string, "multivalue")
    vip            = optional(string, "")
    address_source = optional(string, "imds-private")
    interface      = optional(string, "")
    frontends      = optional(list(string), ["http://127.0.0.1:80/"])
    ttl_s          = optional(number, 60)
    reaper         = optional(bool, false)
    reap_port      = optional(number, 80)
  })
  default = null

  validation {
    condition     = var.dns == null || try(length(var.dns.names) > 0 && alltrue([for name in var.dns.names : can(regex("^(\\*\\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z0-9-]+$", name))]), false)
    error_message = "dns.names are host names like lb.example.com."
  }
  validation {
    condition     = var.dns == null || contains(["multivalue", "shared", "vip"], try(var.dns.mode, ""))
    error_message = "dns.mode is multivalue, shared or vip."
  }
  validation {
    condition     = var.dns == null || try(var.dns.mode != "vip" || var.dns.vip != "", false)
    error_message = "dns.mode vip needs dns.vip, one of the floating addresses."
  }
  validation {
    condition     = var.dns == null || contains(["imds-public", "imds-private", "interface", "fixed"], try(var.dns.address_source, ""))
    error_message = "dns.address_source is imds-public, imds-private, interface or fixed."
  }
  validation {
    condition     = var.dns == null || try(var.dns.address_source != "interface" || var.dns.interface != "", false)
    error_message = "dns.address_source interface needs dns.interface."
  }
  validation {
    condition     = var.dns == null || try(var.dns.address_source != "fixed" || alltrue([for node in var.nodes : node.dns_address != "" || node.dns_address6 != ""]), false)
    error_message = "dns.address_source fixed needs dns_address or dns_address6 for each node."
  }
  validation {
    condition     = var.dns == null || try(var.dns.reaper || (var.dns.mode == "multivalue" && alltrue([for node in var.nodes : node.health_check_id != ""])), false)
    error_message = "Who takes a dead node out of the answer? Set dns.reaper, or in mode multivalue a health_check_id for each node."
  }
}

variable "fragments" {
  description = "haproxy.cfg in pieces, by file name (*.conf, *.tmpl); they are all there is then. None: those that the image has in /etc/pyconfd."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.fragments) : can(regex("^[A-Za-z0-9][A-Za-z0-9._-]*\\.(conf|tmpl)$", name))])
    error_message = "Fragments are called NAME.conf or NAME.tmpl."
  }
  validation {
    condition     = alltrue([for text in values(var.fragments) : !strcontains(text, "PRIVATE KEY")])
    error_message = "A fragment holds a private key: name its file instead (bind ... ssl crt /etc/pyconfd/certs/)."
  }
}

variable "extra_settings" {
  description = "More settings, as TOML with sections that this module does not write (removal_protection, log, status, claims ...)."
  type        = string
  default     = ""

  validation {
    condition     = !can(regex("(?m)^\\s*\\[+\\s*(kubernetes|presets|templates|vip|dns)\\b", var.extra_settings))
    error_message = "[kubernetes], [presets], [templates], [vip] and [dns] are written by this module."
  }
  validation {
    condition     = trimspace(var.extra_settings) == "" || startswith(trimspace(var.extra_settings), "[") || startswith(trimspace(var.extra_settings), "#")
    error_message = "extra_settings begins with a section, like [removal_protection]."
  }
  validation {
    condition     = !strcontains(var.extra_settings, "PRIVATE KEY")
    error_message = "extra_settings holds a private key."
  }
}

variable "pyconfd_version" {
  description = "The pyconfd that these settings are written for; an older one on the machine ignores what it does not know, and says so. Empty: the one on the machine."
  type        = string
  default     = ""

  validation {
    condition     = var.pyconfd_version == "" || can(regex("^\\d+\\.\\d+\\.\\d+((a|b|rc)\\d+)?$", var.pyconfd_version))
    error_message = "pyconfd_version is a version such as 1.2.3."
  }
}

variable "extra_files" {
  description = "More files for the machine, such as a program that fetches secrets. No secrets here."
  type = list(object({
    path        = string
    content     = string
    permissions = optional(string, "0644")
    owner       = optional(string, "root:root")
  }))
  default = []

  validation {
    condition     = alltrue([for file in var.extra_files : startswith(file.path, "/") && !strcontains(file.content, "PRIVATE KEY")])
    error_message = "extra_files have absolute paths, and hold no private keys."
  }
}

variable "extra_commands" {
  description = "Commands that are run once, at the end of the first boot, each a list of words."
  type        = list(list(string))
  default     = []
}
