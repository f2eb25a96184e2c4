# The planner as a Nomad job: `replan --watch`, and the webhook for an admission proxy.
# Nomad gives the tasks a token and a socket of its API; README.md says which rights they need.
variable "nomad" {
  type    = string
  default = "unix://$${NOMAD_SECRETS_DIR}/api.sock"
}

variable "driver" {
  type    = string
  default = "exec"
}

variable "program" {
  type    = string
  default = "/usr/local/bin/nomad-gpu-mem"
}

variable "consul" {
  type    = string
  default = "127.0.0.1:8500"
}

job "gpu-planner" {
  group "replan" {
    task "replan" {
      driver = var.driver

      config {
        command = var.program
        args    = ["replan", "--watch"]
      }

      identity {
        env = true # NOMAD_TOKEN
      }

      env {
        NOMAD_ADDR       = var.nomad
        CONSUL_HTTP_ADDR = var.consul
      }

      template {
        destination = "secrets/tokens.env"
        env         = true
        data        = <<-EOT
          {{- with nomadVar "nomad/jobs/gpu-planner" }}
          CONSUL_HTTP_TOKEN={{ .consul_token }}
          {{- with .nomad_token }}
          NOMAD_TOKEN={{ . }}
          {{- end }}
          {{- end }}
        EOT
      }

      resources {
        cpu    = 100
        memory = 256
      }
    }
  }

  group "webhook" {
    network {
      port "http" {}
    }

    service {
      name     = "gpu-planner"
      provider = "nomad"
      port     = "http"

      check {
        type     = "http"
        path     = "/healthz"
        interval = "10s"
        timeout  = "2s"
      }
    }

    task "webhook" {
      driver = var.driver

      config {
        command = var.program
        args = [
          "webhook",
          "--listen", "${NOMAD_ADDR_http}",
          "--token-file", "${NOMAD_SECRETS_DIR}/webhook_token",
        ]
      }

      identity {
        env = true
      }

      env {
        NOMAD_UNIX_ADDR  = "unix://${NOMAD_SECRETS_DIR}/api.sock" # Nomad 1.10.3 and newer set it
        CONSUL_HTTP_ADDR = var.consul
      }

      template {
        destination = "secrets/tokens.env"
        env         = true
        data        = <<-EOT
          {{- with nomadVar "nomad/jobs/gpu-planner" }}
          CONSUL_HTTP_TOKEN={{ .consul_token }}
          {{- end }}
        EOT
      }

      template {
        destination = "secrets/webhook_token"
        data        = "{{ with nomadVar \"nomad/jobs/gpu-planner\" }}{{ .webhook_token }}{{ end }}"
      }

      resources {
        cpu    = 100
        memory = 256
      }
    }
  }
}
