# A training run: shared memory within the task's memory, locked pages, a folder of the
# host, secrets from a template, and no restart.
variable "memory" {
  type    = number
  default = 64
}

variable "memlock" {
  type    = string
  default = "-1"
}

job "fine-tune" {
  type = "batch"

  group "train" {
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    task "train" {
      driver = "docker"

      config {
        image    = "gpu-mem/cuda:1"
        work_dir = "/work"
        volumes  = ["/tmp:/scratch:ro"]
        shm_size = 33554432
        command  = "sh"
        args     = ["-c", "pwd; grep ' /dev/shm ' /proc/mounts; ulimit -l; ls -d /scratch; echo token $TOKEN"]

        ulimit {
          memlock = var.memlock
        }
      }

      template {
        destination = "secrets/token.env"
        env         = true
        change_mode = "noop"
        data        = <<-END
          {{- if nomadVarExists "nomad/jobs/fine-tune" }}
          {{- with nomadVar "nomad/jobs/fine-tune" }}
          TOKEN={{ .token }}
          {{- end }}
          {{- else }}
          TOKEN=none
          {{- end }}
        END
      }

      resources {
        cpu    = 20
        memory = var.memory

        device "nvidia/gpu-mem" {
          count = 1
        }
      }
    }
  }
}
