// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// entry is one entry of a tar archive; of a file unless it has another type.
type entry struct {
	name, content string
	kind          byte
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644}
		switch e.kind {
		case 0:
			header.Typeflag, header.Size = tar.TypeReg, int64(len(e.content))
		case tar.TypeSymlink, tar.TypeLink:
			header.Linkname = e.content
		}
		must.NoError(t, w.WriteHeader(header))
		if e.kind == 0 {
			_, err := io.WriteString(w, e.content)
			must.NoError(t, err)
		}
	}
	must.NoError(t, w.Close())
	return out.Bytes()
}

// sparseTar is an archive of 5 KiB with a file of a tebibyte. Go writes no such files, only reads them.
func sparseTar(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	pack := exec.CommandContext(t.Context(), "sh", "-c", "truncate -s 1T x && tar --sparse --format=posix -cf - x")
	pack.Dir = dir
	out, err := pack.Output()
	must.NoError(t, err)
	must.Less(t, 1<<20, len(out))
	return out
}

const (
	theConfig = `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:1","sha256:2"]}}`
	manifest1 = `[{"Config":"c.json","RepoTags":["team/app:1"],"Layers":["a/layer.tar","b/layer.tar"]}]`
)

// saved is an archive as docker save writes it, with another manifest.
func saved(manifest string, more ...entry) []entry {
	return append([]entry{
		{name: "a", kind: tar.TypeDir}, {name: "a/layer.tar", content: "layer a"}, {name: "b/layer.tar", content: "layer b"},
		{name: "c.json", content: theConfig}, {name: "manifest.json", content: manifest},
	}, more...)
}

// laidOut is an OCI layout, with the annotations of its image in JSON.
func laidOut(annotations string, more ...entry) []entry {
	blob := func(text string) (digest string, e entry) {
		digest = digestOf([]byte(text))
		return digest, entry{name: "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:"), content: text}
	}
	config, configBlob := blob(theConfig)
	a, layerA := blob("layer a")
	b, layerB := blob("layer b")
	manifest, manifestBlob := blob(fmt.Sprintf(`{"config":{"digest":%q},"layers":[{"digest":%q},{"digest":%q}]}`, config, a, b))
	return append([]entry{
		configBlob, layerA, layerB, manifestBlob, {name: "oci-layout", content: `{"imageLayoutVersion":"1.0.0"}`},
		{name: "index.json", content: fmt.Sprintf(`{"manifests":[{"digest":%q,"annotations":%s}]}`, manifest, annotations)},
	}, more...)
}

// loadingDaemon is a daemon that notes what it is given to load.
func loadingDaemon() (*fakeDaemon, *[]byte) {
	var got []byte
	daemon := &fakeDaemon{create: pulling, present: map[string]bool{}}
	daemon.handler = map[string]http.Handler{"POST /images/load": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		archive, _ := io.ReadAll(r.Body)
		daemon.mu.Lock()
		defer daemon.mu.Unlock()
		got = archive
		daemon.present["sha256:loaded"] = true
		_, _ = io.WriteString(w, `{"status":"Loading layer","id":"x"}{"stream":"Loaded image ID: sha256:loaded\n"}`)
	})}
	return daemon, &got
}

func opens(archive []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
}

// untar reads what the daemon got.
func untar(t *testing.T, archive []byte) (names []string, content map[string]string) {
	t.Helper()
	content = map[string]string{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, content
		}
		must.NoError(t, err)
		text, err := io.ReadAll(r)
		must.NoError(t, err)
		must.Eq(t, tar.TypeReg, header.Typeflag)
		names, content[header.Name] = append(names, header.Name), string(text)
	}
}

// Whatever the archive is like, Docker gets one that can be read in one way only, and that gives no name to anything.
func TestLoadRewritesArchives(t *testing.T) {
	t.Parallel()
	compressed := func(archive []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, err := w.Write(archive)
		must.NoError(t, err)
		must.NoError(t, w.Close())
		return out.Bytes()
	}
	linked := slices.DeleteFunc(saved(manifest1), func(e entry) bool { return e.name == "b/layer.tar" })
	for name, tc := range map[string]struct {
		ref     string
		archive []byte
		layerB  string
	}{
		"saved":             {"team/app:1", tarOf(t, saved(manifest1)...), "layer b"},
		"saved, gzip":       {"team/app:1", compressed(tarOf(t, saved(manifest1)...)), "layer b"},
		"other spelling":    {"docker.io/team/app:1", tarOf(t, saved(manifest1)...), "layer b"},
		"tag of old":        {"team/app:1", tarOf(t, saved(manifest1, entry{name: "repositories", content: `{"team/app":{"1":"b"}}`})...), "layer b"},
		"full name inside":  {"team/app:1", tarOf(t, saved(strings.Replace(manifest1, "team", "docker.io/team", 1))...), "layer b"},
		"latest by default": {"team/app", tarOf(t, saved(strings.Replace(manifest1, ":1", ":latest", 1))...), "layer b"},
		"shared layer":      {"team/app:1", tarOf(t, append(linked, entry{"b/layer.tar", "../a/layer.tar", tar.TypeSymlink})...), "layer a"},
		"hard link":         {"team/app:1", tarOf(t, append(linked, entry{"b/layer.tar", "a/layer.tar", tar.TypeLink})...), "layer a"},
		"OCI":               {"team/app:1", tarOf(t, laidOut(`{"io.containerd.image.name":"docker.io/team/app:1","org.opencontainers.image.ref.name":"1"}`)...), "layer b"},
		"OCI, tag alone":    {"team/app:1", tarOf(t, laidOut(`{"org.opencontainers.image.ref.name":"1"}`)...), "layer b"},
		"both formats":      {"team/app:1", tarOf(t, saved(manifest1, laidOut(`{"io.containerd.image.name":"team/app:1"}`)...)...), "layer b"},
		"more files":        {"team/app:1", tarOf(t, saved(manifest1, entry{name: "etc/passwd", content: "x"})...), "layer b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			daemon, got := loadingDaemon()
			image, err := daemon.start(t, Config{SpoolDir: t.TempDir()}).EnsureImage(t.Context(),
				PullRequest{Ref: tc.ref, Force: true, Load: opens(tc.archive)})
			must.NoError(t, err)
			must.Eq(t, "id of sha256:loaded", image.ID)
			names, content := untar(t, *got)
			must.Eq(t, []string{"manifest.json", "config.json", "layer-0.tar", "layer-1.tar"}, names)
			must.Eq(t, map[string]string{
				"manifest.json": `[{"Config":"config.json","RepoTags":[],"Layers":["layer-0.tar","layer-1.tar"]}]`,
				"config.json":   theConfig, "layer-0.tar": "layer a", "layer-1.tar": tc.layerB,
			}, content)
			must.SliceEmpty(t, daemon.pulled())
		})
	}
}

// Nothing reaches Docker of an archive with another image than the job's, or that can be read in two ways.
func TestLoadRefusesArchives(t *testing.T) {
	t.Parallel()
	tags := func(tags string) string { return strings.Replace(manifest1, `"team/app:1"`, tags, 1) }
	without := func(entries []entry, name string) []entry {
		return slices.DeleteFunc(entries, func(e entry) bool { return e.name == name })
	}
	wide := saved(manifest1)
	for n := range mostEntries {
		wide = append(wide, entry{name: fmt.Sprint("n", n)})
	}
	digest := "sha256:" + strings.Repeat("ab", 32)
	for name, tc := range map[string]struct {
		ref     string
		archive []byte
		want    string
	}{
		"further tag":                {"", tarOf(t, saved(tags(`"team/app:1","registry.k8s.io/pause-amd64:3.3"`))...), "pause-amd64:3.3"},
		"other tag":                  {"", tarOf(t, saved(tags(`"redis:7"`))...), `"redis:7"`},
		"odd spelling of another":    {"", tarOf(t, saved(tags(`"docker.io/library/../redis:7"`))...), "redis:7"},
		"upper case":                 {"", tarOf(t, saved(tags(`"Team/app:1"`))...), "Team/app:1"},
		"no tag":                     {"", tarOf(t, saved(tags(``))...), "has no name"},
		"null for tags":              {"", tarOf(t, saved(strings.Replace(manifest1, `["team/app:1"]`, "null", 1))...), "has no name"},
		"tags under another case":    {"", tarOf(t, saved(strings.Replace(manifest1, `"Layers"`, `"REPOTAGS":["redis:7"],"Layers"`, 1))...), "redis:7"},
		"two images":                 {"", tarOf(t, saved(`[`+manifest1[1:len(manifest1)-1]+`,`+manifest1[1:])...), "2 images"},
		"no image":                   {"", tarOf(t, saved(`[]`)...), "0 images"},
		"two manifests":              {"", tarOf(t, saved(manifest1, entry{name: "manifest.json", content: manifest1})...), `"manifest.json" twice`},
		"two manifests, dotted":      {"", tarOf(t, saved(manifest1, entry{name: "./manifest.json", content: tags(`"redis:7"`)})...), `"manifest.json" twice`},
		"two manifests, doubled":     {"", tarOf(t, saved(manifest1, entry{name: "x/..//manifest.json", content: manifest1})...), `"manifest.json" twice`},
		"manifest and a link":        {"", tarOf(t, saved(manifest1, entry{"manifest.json", "c.json", tar.TypeSymlink})...), `"manifest.json" twice`},
		"manifest as a link":         {"", tarOf(t, append(without(saved(manifest1), "manifest.json"), entry{"manifest.json", "x", tar.TypeSymlink}, entry{name: "x", content: manifest1})...), `no file "manifest.json"`},
		"manifest as a folder":       {"", tarOf(t, append(without(saved(manifest1), "manifest.json"), entry{name: "manifest.json/", kind: tar.TypeDir})...), "not an image archive"},
		"text after the manifest":    {"", tarOf(t, saved(manifest1+manifest1)...), "not valid"},
		"other name in the index":    {"", tarOf(t, saved(manifest1, laidOut(`{"io.containerd.image.name":"docker.io/library/redis:7"}`)...)...), "redis:7"},
		"other name in repositories": {"", tarOf(t, saved(manifest1, entry{name: "repositories", content: `{"redis":{"7":"b"}}`})...), "redis:7"},
		"repositories alone":         {"", tarOf(t, append(without(saved(manifest1), "manifest.json"), entry{name: "repositories", content: `{"team/app":{"1":"b"}}`})...), "before 1.10"},
		"OCI of another name":        {"", tarOf(t, laidOut(`{"io.containerd.image.name":"docker.io/library/redis:7"}`)...), "redis:7"},
		"OCI of another tag":         {"", tarOf(t, laidOut(`{"org.opencontainers.image.ref.name":"2"}`)...), `"2"`},
		"OCI of two names":           {"", tarOf(t, laidOut(`{"io.containerd.image.name":"team/app:1","org.opencontainers.image.ref.name":"redis:7"}`)...), "redis:7"},
		"OCI without a name":         {"", tarOf(t, laidOut(`{}`)...), "has no name"},
		"OCI index alone":            {"", tarOf(t, without(laidOut(`{}`), "oci-layout")...), "not an image archive"},
		"OCI with a false blob":      {"", bytes.ReplaceAll(tarOf(t, laidOut(`{"org.opencontainers.image.ref.name":"1"}`)...), []byte(`"amd64"`), []byte(`"arm64"`)), "another content than its name says"},
		"path out of it":             {"", tarOf(t, saved(manifest1, entry{name: "../x", content: "x"})...), "not a path inside"},
		"path from the root":         {"", tarOf(t, saved(manifest1, entry{name: "/etc/x", content: "x"})...), "not a path inside"},
		"device":                     {"", tarOf(t, saved(manifest1, entry{name: "x", kind: tar.TypeBlock})...), "neither a file"},
		"sparse file":                {"", sparseTar(t), "sparse"},
		"pipe":                       {"", tarOf(t, saved(manifest1, entry{name: "x", kind: tar.TypeFifo})...), "neither a file"},
		"configuration as a link":    {"", tarOf(t, append(without(saved(manifest1), "c.json"), entry{"c.json", "../../etc/shadow", tar.TypeSymlink})...), `no file "c.json"`},
		"layer as a link out of it":  {"", tarOf(t, append(without(saved(manifest1), "a/layer.tar"), entry{"a/layer.tar", "/etc/shadow", tar.TypeSymlink})...), `no file "a/layer.tar"`},
		"links in a circle":          {"", tarOf(t, append(without(saved(manifest1), "a/layer.tar"), entry{"a/layer.tar", "x", tar.TypeSymlink}, entry{"a/x", "layer.tar", tar.TypeSymlink})...), `no file "a/layer.tar"`},
		"too many entries":           {"", tarOf(t, wide...), "more than 10000 entries"},
		"large manifest":             {"", tarOf(t, saved(manifest1+strings.Repeat(" ", mostMetadata))...), "larger than"},
		"no archive":                 {"", []byte("team/app:1"), "not a tar archive"},
		"empty":                      {"", nil, "not an image archive"},
		"zstd":                       {"", []byte{0x28, 0xb5, 0x2f, 0xfd, 0}, "xz or zstd"},
		"by a digest of its own":     {"team/app@" + digest, tarOf(t, saved(manifest1)...), "the job's image"},
		"named, asked for by ID":     {digest, tarOf(t, saved(manifest1)...), "team/app:1"},
		"another ID":                 {digest, tarOf(t, saved(tags(``))...), "the archive has the image sha256:loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			daemon, got := loadingDaemon()
			ref := "team/app:1"
			if tc.ref != "" {
				ref = tc.ref
			}
			_, err := daemon.start(t, Config{SpoolDir: t.TempDir()}).EnsureImage(t.Context(), PullRequest{Ref: ref, Force: true, Load: opens(tc.archive)})
			must.ErrorIs(t, err, ErrImage)
			must.ErrorContains(t, err, tc.want)
			if name != "another ID" {
				must.Nil(t, *got)
			}
		})
	}
}

// An image that is here already is used as it is.
func TestLoadOfAnImageThatIsHere(t *testing.T) {
	t.Parallel()
	daemon, got := loadingDaemon()
	id := digestOf([]byte(theConfig))
	daemon.present[id] = true
	image, err := daemon.start(t, Config{SpoolDir: t.TempDir()}).EnsureImage(t.Context(),
		PullRequest{Ref: "team/app:1", Load: opens(tarOf(t, saved(manifest1)...))})
	must.NoError(t, err)
	must.Eq(t, "id of "+id, image.ID)
	must.Nil(t, *got)
}

// A job may name the image by any ID that engines give it. Docker has another ID for it yet where its images are in containerd.
func TestLoadByID(t *testing.T) {
	t.Parallel()
	config := digestOf([]byte(theConfig))
	laid := laidOut(`{}`)
	manifest := "sha256:" + strings.TrimPrefix(laid[3].name, "blobs/sha256/")
	unnamed := strings.Replace(manifest1, `"team/app:1"`, "", 1)
	for name, tc := range map[string]struct {
		ref     string
		archive []entry
	}{
		"configuration":                  {config, saved(unnamed)},
		"configuration of an OCI layout": {config, laid},
		"manifest":                       {manifest, laid},
		"manifest beside docker save's":  {manifest, saved(unnamed, laid...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			daemon, _ := loadingDaemon()
			image, err := daemon.start(t, Config{SpoolDir: t.TempDir()}).EnsureImage(t.Context(),
				PullRequest{Ref: tc.ref, Load: opens(tarOf(t, tc.archive...))})
			must.NoError(t, err)
			must.Eq(t, "id of sha256:loaded", image.ID)
		})
	}
	other := saved(strings.Replace(unnamed, "c.json", "d.json", 1), append(laid, entry{name: "d.json", content: `{"architecture":"amd64","os":"linux"}`})...)
	daemon, _ := loadingDaemon()
	_, err := daemon.start(t, Config{SpoolDir: t.TempDir()}).EnsureImage(t.Context(), PullRequest{Ref: manifest, Load: opens(tarOf(t, other...))})
	must.ErrorContains(t, err, "the archive has the image", must.Sprint("the manifest is of another configuration"))
}

// The daemon's error is returned, and nothing hangs when it does not read the archive.
func TestLoadFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"status":  {answer(http.StatusInternalServerError, `{"message":"no space left on device"}`), "no space left on device"},
		"message": {answer(http.StatusOK, `{"errorDetail":{"message":"invalid diffID for layer 0"},"error":"x"}`), "invalid diffID"},
		"silence": {answer(http.StatusOK, `{"stream":"Loaded image: team/app:1"}`), "did not tell the ID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			daemon := &fakeDaemon{handler: map[string]http.Handler{"POST /images/load": tc.answer}}
			large := saved(manifest1, entry{name: "x", content: "x"})
			large[1].content = strings.Repeat("layer a", 1<<20)
			_, err := daemon.start(t, Config{SpoolDir: t.TempDir()}).EnsureImage(t.Context(), PullRequest{Ref: "team/app:1", Load: opens(tarOf(t, large...))})
			must.ErrorIs(t, err, ErrImage)
			must.ErrorContains(t, err, tc.want)
		})
	}
}

// A copy of an archive neither fills the disk nor stays on it.
func TestSpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := newSpool(t.Context(), dir)
	must.NoError(t, err)
	defer s.Close()
	left, err := os.ReadDir(dir)
	must.NoError(t, err)
	must.SliceEmpty(t, left)
	first, err := s.add(strings.NewReader("one"))
	must.NoError(t, err)
	second, err := s.add(strings.NewReader("second"))
	must.NoError(t, err)
	for at, want := range map[extent]string{first: "one", second: "second"} {
		text, err := io.ReadAll(s.section(at))
		must.NoError(t, err)
		must.Eq(t, want, string(text))
	}
	s.reserve = 1 << 62
	_, err = s.add(strings.NewReader("x"))
	must.ErrorContains(t, err, "state_dir")
}

func FuzzArchive(f *testing.F) {
	for _, entries := range [][]entry{saved(manifest1), laidOut(`{"org.opencontainers.image.ref.name":"1"}`)} {
		f.Add(tarOf(f, entries...))
	}
	ref, _ := parseRef("team/app:1")
	f.Fuzz(func(t *testing.T, archive []byte) {
		s, err := newSpool(t.Context(), t.TempDir())
		must.NoError(t, err)
		defer s.Close()
		read, image, err := readImage(s, ref, opens(archive))
		if err != nil {
			return
		}
		var out bytes.Buffer
		must.NoError(t, read.rewrite(image, &out))
		names, content := untar(t, out.Bytes())
		must.Eq(t, "manifest.json", names[0])
		var manifest []savedImage
		must.NoError(t, json.Unmarshal([]byte(content["manifest.json"]), &manifest))
		must.SliceLen(t, 1, manifest)
		must.SliceEmpty(t, manifest[0].RepoTags)
	})
}
