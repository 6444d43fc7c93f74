package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	nodeName = "node-1"
	workers  = 4
)

// kubelet brings what runs in line with the Pods of the API server, one Pod at a time.
type kubelet struct {
	client    kubernetes.Interface
	sandboxes *sandboxes
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	pods      cache.Store

	mu      sync.Mutex
	running map[types.UID]*sandbox
}

func newKubelet(client kubernetes.Interface, sandboxes *sandboxes) *kubelet {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](100*time.Millisecond, 5*time.Second)
	return &kubelet{
		client:    client,
		sandboxes: sandboxes,
		queue:     workqueue.NewTypedRateLimitingQueue(limiter),
		running:   map[types.UID]*sandbox{},
	}
}

// run registers the Node and works until ctx ends.
func (k *kubelet) run(ctx context.Context) error {
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("register the node: %w", err)
	}
	factory := informers.NewSharedInformerFactory(k.client, 0)
	informer := factory.Core().V1().Pods().Informer()
	k.pods = informer.GetStore()
	enqueue := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		pod := obj.(*corev1.Pod)
		k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, current any) { enqueue(current) },
		// Nobody asked the kubelet: the Pod was deleted by force.
		DeleteFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				k.kill(pod.UID)
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	go func() { log.Fatal(k.serveLogs()) }()
	for range workers {
		go k.work(ctx)
	}
	log.Printf("%s is ready", nodeName)
	<-ctx.Done()
	k.queue.ShutDown()
	return nil
}

func (k *kubelet) register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName}}}
	node, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: gateway.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = logPort
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	_, err = k.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func (k *kubelet) work(ctx context.Context) {
	for {
		key, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		if err := k.sync(ctx, key); err != nil {
			log.Printf("pod %s: %v", key, err)
			k.queue.AddRateLimited(key)
		} else {
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}

// sync takes the next step for one Pod: place it, run it, or end it.
func (k *kubelet) sync(ctx context.Context, key types.NamespacedName) error {
	obj, exists, err := k.pods.GetByKey(key.String())
	if err != nil || !exists {
		return err
	}
	pod := obj.(*corev1.Pod)
	switch {
	case pod.DeletionTimestamp != nil:
		k.kill(pod.UID)
		return ignoreNotFound(k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		}))
	case pod.Spec.NodeName == "":
		return ignoreNotFound(k.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
		}, metav1.CreateOptions{}))
	default:
		return k.start(ctx, pod)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or another Pod of that name by now: its own event follows
	}
	return err
}

// start runs the Pod where it does not run, and reports it as ready.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	k.mu.Lock()
	box := k.running[pod.UID]
	k.mu.Unlock()
	if box == nil {
		plan, err := k.plan(ctx, pod)
		if err != nil {
			return err
		}
		box, err = k.sandboxes.start(string(pod.UID), plan)
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.running[pod.UID] = box
		k.mu.Unlock()
		go func() {
			<-box.exited
			k.kill(pod.UID)
			k.queue.AddRateLimited(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}()
	}
	if pod.Status.PodIP == box.address {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": readyStatus(pod, box.address)})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(
		ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return ignoreNotFound(err)
}

func (k *kubelet) kill(uid types.UID) {
	k.mu.Lock()
	box := k.running[uid]
	delete(k.running, uid)
	k.mu.Unlock()
	if box != nil {
		box.kill()
	}
}

// plan reads what the Pod's container needs: its environment, and the files of its volumes.
func (k *kubelet) plan(ctx context.Context, pod *corev1.Pod) (plan, error) {
	container := pod.Spec.Containers[0]
	if len(pod.Spec.Containers) > 1 || !strings.Contains(container.Image, "/echo-basic:") {
		return plan{}, fmt.Errorf("runs only the echo server, not %s", container.Image)
	}
	made := plan{files: map[string][]byte{}}
	for _, variable := range container.Env {
		value := variable.Value
		if source := variable.ValueFrom; source != nil {
			if source.FieldRef == nil {
				return plan{}, fmt.Errorf("cannot fill the variable %s", variable.Name)
			}
			switch source.FieldRef.FieldPath {
			case "metadata.name":
				value = pod.Name
			case "metadata.namespace":
				value = pod.Namespace
			default:
				return plan{}, fmt.Errorf("cannot fill the variable %s", variable.Name)
			}
		}
		made.environment = append(made.environment, variable.Name+"="+value)
	}
	for _, mount := range container.VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if volume.Name != mount.Name {
				continue
			}
			data, items, err := k.volume(ctx, pod.Namespace, volume)
			if err != nil {
				return plan{}, err
			}
			for _, item := range items {
				made.files[path.Join(mount.MountPath, item.Path)] = data[item.Key]
			}
		}
	}
	return made, nil
}

func (k *kubelet) volume(ctx context.Context, namespace string, volume corev1.Volume) (map[string][]byte, []corev1.KeyToPath, error) {
	switch {
	case volume.Secret != nil:
		secret, err := k.client.CoreV1().Secrets(namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
		return secret.Data, volume.Secret.Items, err
	case volume.ConfigMap != nil:
		found, err := k.client.CoreV1().ConfigMaps(namespace).Get(ctx, volume.ConfigMap.Name, metav1.GetOptions{})
		data := map[string][]byte{}
		for key, value := range found.Data {
			data[key] = []byte(value)
		}
		return data, volume.ConfigMap.Items, err
	default:
		return nil, nil, nil // the token of the service account, which the echo server does not read
	}
}

func readyStatus(pod *corev1.Pod, address string) corev1.PodStatus {
	now := metav1.Now()
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		StartTime: &now,
		HostIP:    gateway.String(),
		PodIP:     address,
		PodIPs:    []corev1.PodIP{{IP: address}},
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	started := true
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: true, Started: &started,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}
	return status
}
