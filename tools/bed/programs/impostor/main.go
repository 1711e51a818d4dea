// SPDX-License-Identifier: Apache-2.0

// Impostor is a program that a hostile user runs in a Pod without any rights, to misuse programs that inspect the host as
// root.
//
// It starts itself under the names of the host's components, with arguments that lead to traps in a volume of its own: links
// to root's files, a FIFO that nobody writes to, an endless device. If anybody runs its binary as root, it leaves a proof.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

// The file that shows that root ran the binary. It is in the Pod, or on the host if root ran the binary there.
const proof = "/var/lib/impostor-was-run-by-root"

// The volume, and root's file that molecule creates on each host.
const (
	trap   = "/trap"
	canary = "/etc/impostor-canary"
)

func main() {
	if os.Getuid() == 0 {
		text := fmt.Sprintf("uid %d ran %q\n", os.Getuid(), os.Args)
		if err := os.WriteFile(proof, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Println("Kubernetes v1.99.9")
		return
	}
	if filepath.Base(os.Args[0]) == "impostor" {
		if err := setTraps(); err != nil {
			log.Fatal(err)
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
}

func setTraps() error {
	// Where the kubelet has the volume on the host: every Pod may know its own UID.
	host := "/var/lib/kubelet/pods/" + os.Getenv("POD_UID") + "/volumes/kubernetes.io~empty-dir/trap"
	manifests := filepath.Join(trap, "manifests")
	if err := os.MkdirAll(manifests, 0o755); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"canary.yaml": canary,
		"shadow.yaml": "/etc/shadow",
		"admin.yaml":  "/etc/kubernetes/admin.conf",
		"zero.yaml":   "/dev/zero",
	} {
		if err := os.Symlink(target, filepath.Join(manifests, name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if err := syscall.Mkfifo(filepath.Join(trap, "fifo"), 0o644); err != nil && !os.IsExist(err) {
		return err
	}
	config := fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: %s/manifests\n", host)
	if err := os.WriteFile(filepath.Join(trap, "kubelet.yaml"), []byte(config), 0o644); err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"kubelet", "--config=" + host + "/kubelet.yaml", "--hostname-override=impostor-node", "--cloud-provider=impostor"},
		{"kubelet", "--config=" + host + "/fifo", "--hostname-override=impostor-node"},
		{"kube-apiserver", "--secure-port=1", "--cloud-provider=impostor", "--client-ca-file=" + host + "/fifo"},
		{"kube-controller-manager", "--secure-port=1", "--cloud-provider=impostor", "--cloud-config=" + host + "/manifests/canary.yaml"},
	} {
		child := exec.Cmd{Path: "/impostor", Args: arguments, Stderr: os.Stderr}
		if err := child.Start(); err != nil {
			return err
		}
	}
	return nil
}
