// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path"
	"time"

	"github.com/onsi/ginkgo/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	e2enode "k8s.io/kubernetes/test/e2e/framework/node"
)

// Most of this time passes until Kubernetes sets a silent kubelet's Node to Unknown.
const untilDeleted = 5 * time.Minute

var (
	cloudURL   = flag.String("cloud-url", "", "the project of the simulated cloud whose machines the Nodes are")
	cloudToken = flag.String("cloud-token", "", "its token")
)

// simulated is a provider of the framework that can delete instances of the simulated cloud. Whoever runs the cluster must
// also stop the machine of a deleted instance.
type simulated struct{ framework.NullProvider }

func init() {
	framework.RegisterProvider("sim", func() (framework.ProviderInterface, error) { return simulated{}, nil })
}

func (simulated) DeleteNode(node *v1.Node) error {
	url := *cloudURL + "/instances/" + path.Base(node.Spec.ProviderID)
	request, err := http.NewRequest(http.MethodDelete, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+*cloudToken)
	answer, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return fmt.Errorf("DELETE %s answers %s: %s", url, answer.Status, text)
	}
	return nil
}

// Kubernetes had this spec up to 1.36, for the providers aws and gce.
var _ = framework.SIGDescribe("cloud-provider")("Nodes", feature.CloudProvider, framework.WithDisruptive(), func() {
	f := framework.NewDefaultFramework("cloudprovider")

	ginkgo.It("should be deleted on API server if it doesn't exist in the cloud provider", func(ctx context.Context) {
		before := uids(ctx, f)
		node, err := e2enode.GetRandomReadySchedulableNode(ctx, f.ClientSet)
		framework.ExpectNoError(err)

		ginkgo.By("deleting the machine of " + node.Name + ", " + node.Spec.ProviderID)
		framework.ExpectNoError(framework.TestContext.CloudConfig.Provider.DeleteNode(node))
		err = wait.PollUntilContextTimeout(ctx, time.Second, untilDeleted, true, func(ctx context.Context) (bool, error) {
			_, err := f.ClientSet.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
		framework.ExpectNoError(err, "waiting until the Node %s is gone", node.Name)

		ginkgo.By("looking for all other Nodes")
		after := uids(ctx, f)
		delete(before, node.Name)
		for name, uid := range before {
			if after[name] != uid {
				framework.Failf("Node %s had UID %s, and now %q", name, uid, after[name])
			}
		}
	})
})

func uids(ctx context.Context, f *framework.Framework) map[string]types.UID {
	nodes, err := f.ClientSet.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	framework.ExpectNoError(err)
	found := map[string]types.UID{}
	for _, node := range nodes.Items {
		found[node.Name] = node.UID
	}
	return found
}
