output "name_servers" {
  description = "Delegate the zone to these."
  value       = aws_route53_zone.this.name_servers
}

output "token_secret" {
  description = "Where the token has to be put."
  value       = aws_secretsmanager_secret.token.arn
}

output "public_addresses" {
  value = { for name, address in aws_eip.node : name => address.public_ip }
}
