# A monitor on every node, without a device block: it takes no units and sees all GPUs.
variable "program" {
  type = string
}

variable "consul" {
  type = string
}

job "monitor" {
  type        = "system"
  datacenters = ["*"]

  constraint {
    attribute = "${attr.driver.docker}"
    value     = "1"
  }

  constraint {
    attribute = "${attr.kernel.name}"
    operator  = "regexp"
    value     = "linux|gpu"
  }

  group "monitor" {
    ephemeral_disk {
      sticky = true
    }

    network {
      port "http" {
        static = 21437
      }
    }

    task "monitor" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "while :; do ${var.program} status --json; sleep 1; done"]
      }

      env {
        NODE             = "${node.unique.name}"
        CONSUL_HTTP_ADDR = var.consul
      }

      resources {
        cpu    = 20
        memory = 64
      }
    }
  }
}
