# Without providers, so without a network: terraform init && terraform test

variables {
  nodes = [
    { name = "lb1", addresses = ["192.0.2.11", "2001:db8::11"] },
    { name = "lb2", addresses = ["192.0.2.12", "2001:db8::12"] },
  ]
  kubernetes = {
    api_servers = ["https://10.31.12.49:6443", "https://10.31.12.51:6443"]
    ca_pem      = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
  }
  vip = {
    interface         = "ens5"
    virtual_router_id = 51
    addresses         = ["192.0.2.10/24", "2001:db8::10/64"]
  }
  dns = {
    names  = ["lb.example.com"]
    owner  = "prod-lb"
    reaper = true
  }
  credentials = { token_file = "/etc/pyconfd/token" }
}

run "each_node_gets_its_own" {
  command = plan

  assert {
    condition     = keys(output.user_data) == ["lb1", "lb2"]
    error_message = "There is user data for each node."
  }
  assert {
    condition     = alltrue([for name, text in output.user_data : startswith(text, "#cloud-config\n") && yamldecode(text).hostname == name])
    error_message = "It is cloud-config that names the node."
  }
  assert {
    condition     = strcontains(output.settings["lb2"], "node = \"lb2\"") && !strcontains(output.settings["lb2"], "node = \"lb1\"")
    error_message = "Each node knows which one it is."
  }
  assert {
    condition     = yamldecode(output.user_data["lb1"]).write_files[1].content == output.settings["lb1"]
    error_message = "The settings are the file that is written last."
  }
  assert {
    condition     = !can(yamldecode(output.user_data["lb1"]).runcmd)
    error_message = "Nothing has to be run."
  }
  assert {
    condition     = output.peers == ["192.0.2.11/32", "2001:db8::11/128", "192.0.2.12/32", "2001:db8::12/128"]
    error_message = "The peers are the nodes' own addresses."
  }
}

run "fragments_take_the_place_of_those_in_the_image" {
  command = plan

  variables {
    fragments = { "01-own.conf" = "defaults\n    mode http\n" }
  }
  assert {
    condition     = strcontains(output.settings["lb1"], "dir = \"/etc/pyconfd/fragments\"")
    error_message = "The settings name their directory."
  }
  assert {
    condition     = yamldecode(output.user_data["lb1"]).write_files[1].path == "/etc/pyconfd/fragments/01-own.conf"
    error_message = "They are written."
  }
}

run "an_encrypted_credential_reaches_the_units" {
  command = plan

  variables {
    credentials = { encrypted_credential = "/etc/credstore.encrypted/pyconfd-token" }
  }
  assert {
    condition     = strcontains(output.user_data["lb1"], "LoadCredentialEncrypted=token:pyconfd-token\n")
    error_message = "The unit loads it."
  }
  assert {
    condition     = !strcontains(output.settings["lb1"], "token_file")
    error_message = "Its path depends on the unit."
  }
}

run "one_node_without_anything_else" {
  command = plan

  variables {
    nodes = [{ name = "lb", addresses = [] }]
    vip   = null
    dns   = null
  }
  assert {
    condition     = !strcontains(output.settings["lb"], "[vip]") && !strcontains(output.settings["lb"], "[dns]")
    error_message = "What was not asked for is not there."
  }
}

run "two_nodes_of_one_name" {
  command         = plan
  expect_failures = [var.nodes]

  variables {
    nodes = [{ name = "lb1", addresses = ["192.0.2.11"] }, { name = "lb1", addresses = ["192.0.2.12"] }]
  }
}

run "an_address_with_a_prefix" {
  command         = plan
  expect_failures = [var.nodes]

  variables {
    nodes = [{ name = "lb1", addresses = ["192.0.2.11/24"] }, { name = "lb2", addresses = ["192.0.2.12"] }]
  }
}

run "two_addresses_of_one_family" {
  command         = plan
  expect_failures = [var.nodes]

  variables {
    nodes = [{ name = "lb1", addresses = ["192.0.2.11", "192.0.2.13"] }, { name = "lb2", addresses = ["192.0.2.12"] }]
  }
}

run "a_floating_address_that_is_a_nodes_own" {
  command         = plan
  expect_failures = [var.vip]

  variables {
    vip = { interface = "ens5", virtual_router_id = 51, addresses = ["192.0.2.11/24"] }
  }
}

run "a_floating_address_without_a_prefix" {
  command         = plan
  expect_failures = [var.vip]

  variables {
    vip = { interface = "ens5", virtual_router_id = 51, addresses = ["192.0.2.10"] }
  }
}

run "a_router_without_a_number" {
  command         = plan
  expect_failures = [var.vip]

  variables {
    vip = { interface = "ens5", virtual_router_id = 0, addresses = ["192.0.2.10/24"] }
  }
}

run "a_floating_address_for_one_node" {
  command         = plan
  expect_failures = [var.vip]

  variables {
    nodes = [{ name = "lb1", addresses = ["192.0.2.11"] }]
  }
}

run "nobody_takes_out_the_dead" {
  command         = plan
  expect_failures = [var.dns]

  variables {
    dns = { names = ["lb.example.com"], owner = "prod-lb" }
  }
}

run "health_checks_take_out_the_dead" {
  command = plan

  variables {
    nodes = [
      { name = "lb1", addresses = ["192.0.2.11"], health_check_id = "aaaaaaaa-1111" },
      { name = "lb2", addresses = ["192.0.2.12"], health_check_id = "bbbbbbbb-2222" },
    ]
    dns = { names = ["lb.example.com"], owner = "prod-lb" }
  }
  assert {
    condition     = strcontains(output.settings["lb2"], "health_check_id = \"bbbbbbbb-2222\"")
    error_message = "Each node has its own."
  }
}

run "a_name_that_is_none" {
  command         = plan
  expect_failures = [var.dns]

  variables {
    dns = { names = ["lb_1"], owner = "prod-lb", reaper = true }
  }
}

run "a_key_in_the_ca" {
  command         = plan
  expect_failures = [var.kubernetes]

  variables {
    kubernetes = {
      api_servers = ["https://10.31.12.49:6443"]
      ca_pem      = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n"
    }
  }
}

run "an_api_server_without_tls" {
  command         = plan
  expect_failures = [var.kubernetes]

  variables {
    kubernetes = { api_servers = ["http://10.31.12.49:8080"], ca_pem = "-----BEGIN CERTIFICATE-----\n" }
  }
}

run "a_secret_in_place_of_a_path" {
  command         = plan
  expect_failures = [var.credentials]

  variables {
    credentials = { token_file = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln" }
  }
}

run "a_credential_where_systemd_does_not_look" {
  command         = plan
  expect_failures = [var.credentials]

  variables {
    credentials = { encrypted_credential = "/etc/pyconfd/token.cred" }
  }
}

run "a_preset_that_is_none" {
  command         = plan
  expect_failures = [var.presets]

  variables {
    presets = ["nginx"]
  }
}

run "a_profile_that_is_none" {
  command         = plan
  expect_failures = [var.profile]

  variables {
    profile = "reckless"
  }
}

run "a_fragment_that_is_none" {
  command         = plan
  expect_failures = [var.fragments]

  variables {
    fragments = { "../../etc/passwd" = "x" }
  }
}

run "a_section_that_is_written_already" {
  command         = plan
  expect_failures = [var.extra_settings]

  variables {
    extra_settings = "[removal_protection]\nshare_percent = 60\n[dns]\nnames = []\n"
  }
}
