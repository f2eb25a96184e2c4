# Usual operations on a task: artifacts and templates, a volume, a port, checks, signals.
variable "artifact" {
  type = string
}

job "at-work" {
  group "at-work" {
    network {
      port "http" {
        to = 8080
      }
    }

    volume "shared" {
      type   = "host"
      source = "shared"
    }

    service {
      name = "at-work"
      port = "http"
      task = "web"

      check {
        type     = "script"
        command  = "grep"
        args     = ["-q", "brought", "/local/page/index.html"]
        interval = "2s"
        timeout  = "5s"
      }
    }

    task "web" {
      driver = "docker"

      config {
        image   = "gpu-mem/busybox:1"
        ports   = ["http"]
        command = "sh"
        args    = ["/local/serve.sh"]
      }

      artifact {
        source      = var.artifact
        destination = "local/page"
      }

      template {
        destination = "local/serve.sh"
        change_mode = "noop"
        data        = <<-END
          trap 'echo changed: $(cat /local/greeting)' HUP
          trap 'echo poked' USR1
          trap 'exit 0' TERM INT
          echo written by $NOMAD_TASK_NAME >/shared/at-work
          httpd -p 8080 -h /local/page
          while :; do sleep 1 & wait; done
        END
      }

      template {
        destination   = "local/greeting"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        data          = "{{ with nomadVar \"nomad/jobs/at-work\" }}{{ .greeting }}{{ end }}\n"
      }

      template {
        destination = "local/greeting-too"
        change_mode = "script"
        data        = "{{ with nomadVar \"nomad/jobs/at-work\" }}{{ .greeting }}{{ end }}\n"

        change_script {
          command = "/bin/cp"
          args    = ["/local/greeting-too", "/alloc/data/scripted"]
        }
      }

      volume_mount {
        volume      = "shared"
        destination = "/shared"
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
