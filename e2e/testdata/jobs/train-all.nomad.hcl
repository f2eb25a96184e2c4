# Many units, their number from a variable, in the host's network and IPC namespaces.
variable "units" {
  type    = number
  default = 8
}

variable "memlock" {
  type    = string
  default = "-1"
}

job "train-all" {
  type = "batch"

  group "train" {
    network {
      mode = "host"

      port "meet" {}
    }

    task "train" {
      driver = "docker"

      config {
        image        = "gpu-mem/cuda:1"
        network_mode = "host"
        ipc_mode     = "host"
        shm_size     = 137438953472
        command      = "sh"
        args         = ["-c", "echo $UNITS asked, $GPU_MEM_UNITS given, meet at $NOMAD_PORT_meet; readlink /proc/self/ns/ipc"]

        ulimit {
          memlock = var.memlock
          stack   = "67108864"
        }
      }

      env {
        UNITS = var.units
      }

      resources {
        cpu    = 20
        memory = 16

        device "nvidia/gpu-mem" {
          count = var.units
        }
      }
    }
  }
}
