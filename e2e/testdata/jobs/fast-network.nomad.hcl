# Two privileged groups on chosen hosts, with device nodes of a fast network. Only the
# second has a GPU.
variable "host" {
  type = string
}

variable "privileged" {
  type    = bool
  default = true
}

variable "memlock" {
  type    = number
  default = -1
}

job "fast-network" {
  group "source" {
    constraint {
      attribute = "${attr.unique.hostname}"
      value     = var.host
    }

    task "source" {
      driver = "docker"

      config {
        image        = "gpu-mem/busybox:1"
        network_mode = "host"
        privileged   = var.privileged
        cap_add      = ["CAP_CHOWN"]
        command      = "sleep"
        args         = ["3600"]

        ulimit {
          memlock = var.memlock
        }

        devices = [
          {
            host_path      = "/dev/zero"
            container_path = "/dev/infiniband/rdma_cm"
          },
          {
            host_path      = "/dev/full"
            container_path = "/dev/infiniband/uverbs0"
          }
        ]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }

  group "receive" {
    constraint {
      attribute = "${attr.unique.hostname}"
      value     = var.host
    }

    restart {
      attempts = 0
      mode     = "fail"
    }

    task "receive" {
      driver = "docker"

      config {
        image        = "gpu-mem/cuda:1"
        network_mode = "host"
        privileged   = true
        cap_add      = ["CAP_CHOWN"]
        command      = "sleep"
        args         = ["3600"]

        devices = [
          {
            host_path      = "/dev/zero"
            container_path = "/dev/infiniband/rdma_cm"
          }
        ]
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          count = 1
        }
      }
    }
  }
}
