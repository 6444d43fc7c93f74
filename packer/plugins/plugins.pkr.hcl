# For Packer 1.10 and later, which has no plugins of its own: run `packer init plugins` once, in this folder's parent.
# It stands apart because Packer 1.6.6 does not know the block.
packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.2.0"
    }
    qemu = {
      source  = "github.com/hashicorp/qemu"
      version = ">= 1.0.10"
    }
  }
}
