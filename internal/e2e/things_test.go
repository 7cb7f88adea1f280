//go:build linux

package e2e

import "strings"

// The rows of the table of docs/sharing.md that things here differ by.
const (
	badImageName   = "the name of an image is not valid"
	missingInEnv   = "a ConfigMap or Secret that the environment needs does not exist"
	missingVolume  = "a ConfigMap or Secret of a volume does not exist"
	allLabels      = "a file of all labels"
	addressesInEnv = "`status.hostIP` and `status.podIP` in the environment"
	resolvConf     = "`/etc/resolv.conf`"
	ownName        = "the name of a pod with `subdomain` in its own `/etc/hosts`"
	resizing       = "resizing in place"
)

// once is what containers do that are killed at first, by a probe that then succeeds.
const once = `if test -f /state/once; then echo yes > /state/again; else echo yes > /state/once; fi; exec sleep 1000000`

// stateful gives the container main a directory that outlives it.
const (
	stateMount  = `volumeMounts: [{name: state, mountPath: /state}]`
	stateVolume = `volumes: [{name: state, emptyDir: {}}]`
)

// siteObjects are what the pod site needs, which many things are done to, and siteLater is what one of these changes.
const siteObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: site, namespace: NAMESPACE}
data: {color: green, page.html: "from the shop", SIZE: large}
---
apiVersion: v1
kind: Secret
metadata: {name: site, namespace: NAMESPACE}
stringData: {word: sesame}
`

const siteLater = `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: site-later, namespace: NAMESPACE}
data: {state: old}
`

const siteMain = `
stdin: true
workingDir: /www
ports: [{name: http, containerPort: 8080}]
readinessProbe: {httpGet: {path: /index.html, port: http}, periodSeconds: 1}
resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 500m, memory: 64Mi}}
envFrom: [{prefix: SITE_, configMapRef: {name: site}}, {secretRef: {name: site}}, {configMapRef: {name: nothing, optional: true}}]
env:
- {name: PLAIN, value: "a $(NOTHING) $$(PLAIN)"}
- {name: JOINED, value: "$(PLAIN) and more"}
- {name: COLOR, valueFrom: {configMapKeyRef: {name: site, key: color}}}
- {name: WORD, valueFrom: {secretKeyRef: {name: site, key: word}}}
- {name: OPTIONAL, valueFrom: {configMapKeyRef: {name: site, key: nothing, optional: true}}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
- {name: POD_NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: POD_ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
- {name: POD_LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}}
- {name: POD_NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
- {name: POD_LINK, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['example.com/link']"}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
- {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
- {name: MEMORY, valueFrom: {resourceFieldRef: {resource: requests.memory}}}
volumeMounts:
- {name: page, mountPath: /www/index.html, subPath: page.html}
- {name: config, mountPath: /config}
- {name: later, mountPath: /later}
- {name: secret, mountPath: /secret, readOnly: true}
- {name: all, mountPath: /all}
- {name: fields, mountPath: /fields}
- {name: memory, mountPath: /memory}
- {name: scratch, mountPath: /scratch}
- {name: scratch, mountPath: /expanded, subPathExpr: of-$(POD_NAME)}
- {name: nothing, mountPath: /nothing}
`

const siteSpec = `
hostAliases: [{ip: 192.0.2.7, hostnames: [seven, seven.example.com]}]
securityContext: {fsGroup: 4711, supplementalGroups: [4712]}
containers:
- name: other
  command: [sh, -c, "trap 'exit 0' TERM; echo one; echo two; echo three; while true; do sleep 1000 & wait; done"]
  volumeMounts: [{name: scratch, mountPath: /scratch}]
volumes:
- {name: page, configMap: {name: site}}
- {name: config, configMap: {name: site, defaultMode: 0440, items: [{key: color, path: deep/color}, {key: SIZE, path: size, mode: 0400}]}}
- {name: later, configMap: {name: site-later}}
- {name: secret, secret: {secretName: site, defaultMode: 0400}}
- {name: nothing, secret: {secretName: nothing, optional: true}}
- name: all
  projected:
    sources:
    - {configMap: {name: site, items: [{key: color, path: color}]}}
    - {secret: {name: site, items: [{key: word, path: word}]}}
    - {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
- name: fields
  downwardAPI:
    items:
    - {path: name, fieldRef: {fieldPath: metadata.name}}
    - {path: namespace, fieldRef: {fieldPath: metadata.namespace}}
    - {path: uid, fieldRef: {fieldPath: metadata.uid}}
    - {path: tier, fieldRef: {fieldPath: "metadata.labels['tier']"}}
    - {path: note, fieldRef: {fieldPath: "metadata.annotations['note']"}}
    - {path: labels, fieldRef: {fieldPath: metadata.labels}}
    - {path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}
- {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: scratch, emptyDir: {}}
`

// things are what TestPodsReadAsAtHome does.
func things() []*thing {
	return []*thing{
		// Images and commands.
		{name: "image-not-there", main: `{image: bed.example.com/nothing:1, imagePullPolicy: IfNotPresent}`, shows: "waiting ImagePullBackOff",
			do: `until_is "trying and failing to pull image" k logs $POD`},
		{name: "image-never", main: `image: bed.example.com/nothing:1`, shows: "waiting ErrImageNeverPull", do: `no k logs $POD`},
		// An API server says that the error is internal, unless the kubelet takes WebSockets: that depends on its version.
		{name: "exec-not-running", on: "image-never", do: `until_is 'container not found ("main")' k exec $POD -- true; { no k exec $POD -- true 2>&1; } | sed 's/Internal error occurred: //'`},
		{name: "image-name", main: `image: "bed.example.com/NOTHING:1"`, shows: "InvalidImageName", differs: map[string]string{inStatus: badImageName, inEvents: badImageName}},
		{name: "pull-secret", spec: `imagePullSecrets: [{name: nothing}]`, do: `k describe pod $POD | grep -A1 'Image:'`},
		{name: "new-image", on: "pull-secret", do: `k set image pod/$POD main=bed.example.com/nothing:2`, then: "ErrImageNeverPull"},
		{name: "succeeds", sh: `echo done`, spec: `restartPolicy: Never`, shows: "^Succeeded.*terminated 0 0 Completed",
			do: `k wait pod/$POD --for=jsonpath='{.status.phase}'=Succeeded --timeout=300s; k logs $POD; no k exec $POD -- true`},

		// Containers that end. A kubelet says 25 things of a pod at once, and then is silent about it for minutes: so these are two pods.
		{name: "fails", sh: `exit 3`, shows: "^Failed.*container main .* terminated 3 0 Error", do: `k get pod $POD --no-headers; k describe pod $POD | sed '/^Events:/,$d;/^Node:/d;/^IPs\?:/d;/  IP:/d;/^Conditions:/,/PodScheduled/d'`,
			spec: `{restartPolicy: Never, containers: [{name: killed, command: [sh, -c, exit 137]}, {name: other, command: [sh, -c, exit 0]}, {name: no-command, command: [/nothing]}, {name: no-directory, workingDir: /etc/hosts, command: ["true"]}]}`},
		{name: "killed", on: "fails", shows: "container killed .* terminated 137 0 Error"},
		{name: "one-of-many-fails", on: "fails", shows: "^Failed.*container other .* terminated 0 0 Completed"},
		{name: "command-not-there", on: "fails", shows: "container no-command .* terminated 128 0 StartError"},
		{name: "directory-not-there", on: "fails", shows: "container no-directory .* terminated 128 0 StartError"},
		{name: "message", sh: `echo all is well > /dev/termination-log; exit 1`, shows: "^Failed.*container main .* Error: all is well",
			spec: `{restartPolicy: Never, containers: [{name: of-file, command: [sh, -c, "echo for a reason > /tmp/why; exit 1"], terminationMessagePath: /tmp/why}, {name: of-log, command: [sh, -c, "echo the last words; exit 1"], terminationMessagePolicy: FallbackToLogsOnError}, {name: read-only, command: [sh, -c, "echo x > /x"], securityContext: {readOnlyRootFilesystem: true}}]}`},
		{name: "message-file", on: "message", shows: "container of-file .* Error: for a reason"},
		{name: "message-of-log", on: "message", shows: "container of-log .* Error: the last words"},
		{name: "read-only", on: "message", shows: "container read-only .* terminated 1 0 Error", do: `k logs $POD -c read-only`},
		{name: "message-too-long", sh: `printf '%05000d' 0 > /dev/termination-log`, spec: `restartPolicy: Never`, shows: "Completed: (ID){64} was"},

		// Containers that start again.
		{name: "crash-loop", sh: `echo the end; exit 1`, spec: `{containers: [{name: fine, command: [sh, -c, "` + strings.ReplaceAll(sleeps, `"`, `'`) + `"]}]}`, shows: "^Running.*container main .*restarted=true is waiting CrashLoopBackOff.*was terminated 1 0 Error",
			do: `until_is "the end" k logs --previous $POD -c main; until_is "the end" k logs $POD -c main`},
		{name: "fails-once", sh: `test -f /state/once && exit 0; echo yes > /state/once; exit 4`, main: stateMount, spec: `{restartPolicy: OnFailure, ` + stateVolume + `}`,
			shows: "^Succeeded.*restarted=true is terminated 0 0 Completed: was terminated 4 0 Error"},
		{name: "restart-rules", sh: `test -f /state/once && exit 0; echo yes > /state/once; exit 42`, spec: `{restartPolicy: Never, ` + stateVolume + `}`,
			main: `{restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}], ` + stateMount + `}`, shows: "^Succeeded.*restarted=true"},

		// Init containers.
		{name: "init-fails", spec: `{restartPolicy: Never, initContainers: [{name: first, command: [sh, -c, echo no; exit 2]}]}`, shows: "^Failed.*init first.*terminated 2", do: `k logs $POD -c first; no k logs $POD`},
		{name: "init-crash-loop", spec: `{initContainers: [{name: first, command: [sh, -c, exit 2]}]}`, shows: "init first.*CrashLoopBackOff"},
		{name: "inits", sh: `cat /state/*; exit 0`, main: stateMount, shows: "^Succeeded", do: `k logs $POD --all-containers --prefix | sort`,
			spec: `{restartPolicy: Never, initContainers: [{name: first, command: [sh, -c, echo 1 > /state/1; echo first], ` + stateMount + `}, {name: second, command: [sh, -c, cat /state/1; echo 2 > /state/2], ` + stateMount + `}], ` + stateVolume + `}`},
		// The helper has started when it can be told to end.
		{name: "sidecar", sh: `exit 0`, spec: `{restartPolicy: Never, initContainers: [{name: helper, restartPolicy: Always, command: [sh, -c, 'trap "exit 0" TERM; echo yes > /tmp/up; while true; do sleep 1000 & wait; done'], startupProbe: {exec: {command: [test, -f, /tmp/up]}, periodSeconds: 1, failureThreshold: 100, timeoutSeconds: 60}}]}`,
			shows: "^Succeeded", chance: "Unhealthy"}, // whether the probe is too early

		// Probes. They are rare, for the same 25 things, and have a minute, where one on a busy machine would have none.
		{name: "never-ready", main: `readinessProbe: {exec: {command: [sh, -c, "echo not yet; exit 1"]}, periodSeconds: 20, timeoutSeconds: 60}`,
			spec:   `{containers: [{name: by-tcp, command: [sh, -c, exec httpd -f -p 8081 -h /www], readinessProbe: {tcpSocket: {port: 8081}, periodSeconds: 5, timeoutSeconds: 60}}, {name: no-port, command: [sh, -c, sleep 1000000], readinessProbe: {httpGet: {path: /, port: 9}, periodSeconds: 20, timeoutSeconds: 60}}, {name: http-error, command: [sh, -c, exec httpd -f -p 8082 -h /www], readinessProbe: {httpGet: {path: /nothing, port: 8082}, periodSeconds: 20, timeoutSeconds: 60}}]}`,
			chance: `:808[12].*connection refused`, // whether the probe is before the server
			shows:  "Ready=False ContainersNotReady.*Unhealthy.*{main}: Readiness probe failed: not yet", do: `no k wait pod/$POD --for=condition=Ready --timeout=1s`},
		{name: "ready-by-tcp", on: "never-ready", shows: "container by-tcp .*ready=true"},
		{name: "ready-no-port", on: "never-ready", shows: "Unhealthy.*{no-port}.*connection refused"},
		{name: "ready-http-error", on: "never-ready", shows: "Unhealthy.*{http-error}.*404"},
		{name: "ready-later", main: `readinessProbe: {exec: {command: [test, -f, /tmp/ready]}, periodSeconds: 3, timeoutSeconds: 60}`, shows: "Ready=False.*Unhealthy",
			do: `k exec $POD -- sh -c 'echo yes > /tmp/ready'; k wait pod/$POD --for=condition=Ready --timeout=300s`, then: "Ready=True"},
		{name: "evicted", on: "ready-later", then: ".", chance: "Killing", // it may be gone before its kubelet says so
			do: `echo '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"'$POD'","namespace":"'$NS'"}}' | k create --raw /api/v1/namespaces/$NS/pods/$POD/eviction -f - | grep -o Success; k wait pod/$POD --for=delete --timeout=300s`},
		{name: "not-alive-once", sh: once, main: `{livenessProbe: {exec: {command: [test, -f, /state/again]}, periodSeconds: 2, failureThreshold: 3, timeoutSeconds: 60}, ` + stateMount + `}`, shows: "Ready=True.*container main .*restarted=true.*{main}.*failed liveness probe",
			spec:   `{terminationGracePeriodSeconds: 1, containers: [{name: slow, command: [sh, -c, "` + once + `"], startupProbe: {exec: {command: [test, -f, /state/again]}, periodSeconds: 2, failureThreshold: 3, timeoutSeconds: 60}, volumeMounts: [{name: slow, mountPath: /state}]}], volumes: [{name: state, emptyDir: {}}, {name: slow, emptyDir: {}}]}`,
			chance: "Unhealthy"}, // what a probe says that runs while its container is killed
		{name: "not-started-once", on: "not-alive-once", shows: "container slow .*restarted=true.*{slow}.*failed startup probe"},
		{name: "gate", spec: `readinessGates: [{conditionType: example.com/open}]`, shows: "Ready=False ReadinessGatesNotReady", do: `k get pod $POD -o wide --no-headers | grep -o '[01]/1$'`},
		{name: "gate-shut", on: "gate", do: `k patch pod $POD --subresource=status -p '{"status":{"conditions":[{"type":"example.com/open","status":"False"}]}}'`, then: "but False"},
		{name: "gate-opens", on: "gate", do: `k patch pod $POD --subresource=status -p '{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}'`, then: "Ready=True"},

		// Hooks, and the end.
		{name: "post-start", sh: `trap 'cat /tmp/hook; exit 0' TERM; echo hello; while true; do sleep 1000 & wait; done`, do: `k exec $POD -- cat /tmp/hook`,
			main: `lifecycle: {postStart: {exec: {command: [sh, -c, "echo hooked > /tmp/hook"]}}, preStop: {exec: {command: [sh, -c, "echo stopping >> /tmp/hook"]}}}`},
		{name: "pre-stop", on: "post-start", do: `k logs -f $POD > hook & until_is hello cat hook; k delete pod $POD; wait; cat hook; no k get pod $POD`, then: ".", chance: "Killing"}, // as evicted
		{name: "post-start-fails", sh: `trap "exit 0" TERM; echo yes > /tmp/up; while true; do sleep 1000 & wait; done`, main: `lifecycle: {postStart: {exec: {command: [sh, -c, "until test -f /tmp/up; do sleep 1; done; echo no; exit 3"]}}}`, spec: `restartPolicy: Never`, shows: "^Succeeded.*FailedPostStartHook"},

		// What is not there.
		{name: "env-missing", main: `env: [{name: A, valueFrom: {configMapKeyRef: {name: nothing, key: a}}}]`, spec: `{containers: [{name: other, command: [sh, -c, exit 0], envFrom: [{secretRef: {name: nothing}}]}]}`, shows: "CreateContainerConfigError.*CreateContainerConfigError", differs: map[string]string{inStatus: missingInEnv, inEvents: missingInEnv}},
		{name: "env-key", also: siteObjects, main: `env: [{name: A, valueFrom: {configMapKeyRef: {name: site, key: nothing}}}]`, spec: `{containers: [{name: root, command: [sh, -c, exit 0], securityContext: {runAsNonRoot: true}}]}`, shows: "container main .*CreateContainerConfigError.*couldn't find key nothing"},
		{name: "root-refused", on: "env-key", shows: "container root .*CreateContainerConfigError.*runAsNonRoot"},
		// How often it is said that there is nothing yet is a matter of when the kubelet looks.
		{name: "env-later", main: `env: [{name: A, valueFrom: {configMapKeyRef: {name: env-later, key: a}}}]`, shows: "CreateContainerConfigError|MissingReference", chance: "not found|MissingReference",
			do: `k create configmap $POD --from-literal=a=b; k wait pod/$POD --for=condition=Ready --timeout=300s; k exec $POD -- sh -c 'echo $A'`, then: "Ready=True"},
		{name: "forced", on: "env-later", do: `k delete pod $POD --force --grace-period=0`, then: ".", chance: "Killing"}, // as evicted
		{name: "volume-missing", main: `volumeMounts: [{name: state, mountPath: /state}, {name: secret, mountPath: /secret}]`, spec: `volumes: [{name: state, configMap: {name: nothing}}, {name: secret, secret: {secretName: nothing}}]`, shows: `FailedMount.*secret "nothing" not found.*FailedMount.*configmap "nothing" not found`, differs: map[string]string{inStatus: missingVolume, inEvents: missingVolume}},
		{name: "volume-key", also: siteObjects, main: stateMount, spec: `volumes: [{name: state, configMap: {name: site, items: [{key: nothing, path: nothing}]}}]`, shows: "FailedMount.*non-existent config key"},

		// Nodes.
		{name: "no-node", spec: `nodeSelector: {example.com/nothing: here}`, shows: "PodScheduled=False Unschedulable.*FailedScheduling"},
		{name: "too-large", main: `resources: {requests: {cpu: 1000}}`, shows: "PodScheduled=False Unschedulable.*Insufficient cpu"},
		{name: "gated", main: `resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}`, spec: `schedulingGates: [{name: example.com/wait}]`, shows: "PodScheduled=False SchedulingGated", do: `k patch pod $POD --type=json -p '[{"op":"remove","path":"/spec/schedulingGates"}]'`, then: "Ready=True"},
		{name: "resized", on: "gated", do: `k patch pod $POD --subresource=resize -p '{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"200m"}}}]}}' || true`,
			differs: map[string]string{inOutput: resizing, inEvents: resizing}},

		// Who one is.
		{name: "user", main: `securityContext: {runAsUser: 1234, runAsGroup: 4321, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`, do: `k exec $POD -c main -- id`,
			spec: `{shareProcessNamespace: true, hostname: web, subdomain: pages, securityContext: {sysctls: [{name: net.ipv4.ip_local_port_range, value: "40000 41000"}]}, dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.1], searches: [example.com], options: [{name: ndots, value: "2"}]}, containers: [{name: other, command: [sleep, "999999"]}]}`},
		{name: "processes", on: "user", do: `k exec $POD -c other -- sh -c 'cat /proc/*/cmdline' | tr '\0' ' ' | grep -o 'sleep 999999' | sort -u`},
		{name: "hostname", on: "user", do: `k exec $POD -c main -- sh -c 'hostname; cat /etc/hostname'`},
		{name: "subdomain", on: "user", do: `k exec $POD -c main -- cat /etc/hosts`, differs: map[string]string{inOutput: ownName}},
		{name: "sysctl", on: "user", do: `k exec $POD -c main -- cat /proc/sys/net/ipv4/ip_local_port_range`},
		{name: "dns", on: "user", do: `k exec $POD -c main -- cat /etc/resolv.conf`},
		{name: "debug", on: "user", do: `k debug $POD --image=$IMAGE --image-pull-policy=Never -c look --profile=general -- sh -c 'echo looking; exit 5' > /dev/null; k wait pod/$POD --for=jsonpath='{.status.ephemeralContainerStatuses[0].state.terminated.exitCode}'=5 --timeout=300s; k logs $POD -c look`, then: "ephemeral look.*terminated 5"},
		{name: "deadline-set", on: "user", do: `k patch pod $POD -p '{"spec":{"activeDeadlineSeconds":1}}'`, then: "^Failed DeadlineExceeded"},

		// One pod, to which much is done.
		{name: "site", sh: `trap 'exit 0' TERM; httpd -p 8080 -h /www; echo serving $POD_NAME in $POD_NAMESPACE; while read -r line; do echo "got $line"; done; while true; do sleep 1000 & wait; done`,
			meta: `{labels: {tier: front}, annotations: {note: "mind the gap", example.com/link: somewhere}}`, also: siteObjects + siteLater, main: siteMain, spec: siteSpec, chance: "Unhealthy"}, // whether the probe is before the server
		{name: "env", on: "site", do: `uid=$(k get pod $POD -o jsonpath='{.metadata.uid}'); k exec $POD -c main -- env | grep -v -e _IP= -e ^KUBERNETES_ | sed s/$uid/its\ own/ | sort`},
		{name: "env-of-addresses", on: "site", do: `test $(k get pod $POD -o jsonpath='{.status.podIP}') = $(k exec $POD -c main -- sh -c 'echo $POD_IP') && echo its own || echo of elsewhere`, differs: map[string]string{inOutput: addressesInEnv}},
		{name: "files-of-configs", on: "site", do: `k exec $POD -c main -- sh -c 'cat /config/deep/color /config/size; ls -lnL /config/deep /config/size; cat /www/index.html; ls /nothing'`},
		{name: "files-of-secrets", on: "site", do: `no k exec $POD -c main -- sh -c 'exec 2>&1; cat /secret/word; ls -lnL /secret; echo x > /secret/x'`},
		{name: "files-of-all", on: "site", do: `k exec $POD -c main -- sh -c 'cd /all; for f in *; do echo $f: $(cat $f); done'`},
		{name: "files-of-fields", on: "site", do: `k exec $POD -c main -- sh -c 'cd /fields; for f in name namespace tier note cpu; do echo $f: $(cat $f); done; test $POD_UID = $(cat uid) && echo its own'`},
		{name: "files-of-labels", on: "site", do: `k exec $POD -c main -- cat /fields/labels`, differs: map[string]string{inOutput: allLabels}},
		{name: "files-shared", on: "site", do: `k exec $POD -c main -- sh -c 'echo from main > /scratch/x; echo kept > /expanded/y; echo in memory > /memory/z; ls -n /scratch; cat /memory/z'; k exec $POD -c other -- cat /scratch/x /scratch/of-site/y`},
		{name: "files-change", on: "site", do: `k patch configmap site-later -p '{"data":{"state":"new"}}'; k exec $POD -c main -- sh -c 'until test "$(cat /later/state)" = new; do sleep 1; done'`},
		{name: "hosts", on: "site", do: `k exec $POD -c main -- sh -c 'hostname; cat /etc/hosts'`},
		{name: "resolv", on: "site", do: `k exec $POD -c main -- cat /etc/resolv.conf`, differs: map[string]string{inOutput: resolvConf}},
		{name: "exec", on: "site", do: `echo in | no k exec -i $POD -- sh -c 'pwd; cat; exit 7'; no k exec $POD -c main -- /nothing; no k exec $POD -c nothing -- true`},
		{name: "logs", on: "site", do: `until_is three k logs $POD -c other; until_is serving k logs $POD -c main; k logs $POD -c other; k logs $POD -c other --tail=1 --timestamps | cut -d' ' -f2; k logs $POD -c other --limit-bytes=3; echo; k logs $POD -c main | head -1; no k logs $POD -c nothing; no k logs $POD -c other --previous`},
		// What is printed before the streams are joined is not seen, so it is said until it is.
		{name: "attach", on: "site", do: `for _ in $(seq 200); do echo hello; if grep -q 'got hello' attached; then break; fi; sleep 1; done 2> /dev/null | k attach -q -i $POD -c main > attached; grep -o 'got hello' attached | head -1`},
		{name: "cp", on: "site", do: `mkdir cargo; echo cargo > cargo/a; k cp cargo $NS/$POD:/tmp/cp -c main; k cp $NS/$POD:/tmp/cp back -c main &> /dev/null; find back -type f -exec cat {} +`},
		{name: "port-forward", on: "site", do: `kubectl -n $NS port-forward $POD :8080 > forwarded & until_is Forwarding cat forwarded; curl -s --max-time 120 http://127.0.0.1:$(grep -o '127.0.0.1:[0-9]*' forwarded | cut -d: -f2)/index.html; kill $!`},
		{name: "describe", on: "site", do: `k describe pod $POD | sed '/^Events:/,$d;/^Node:/d;/^IPs\?:/d;/  IP:/d;/^Annotations:/d;/^  *note:/d;/^Conditions:/,/PodScheduled/d'`},
		{name: "immutable", on: "site", do: `no k patch pod $POD -p '{"spec":{"hostname":"other","containers":[{"name":"main","command":["true"]}]}}'`},
		{name: "labels", meta: `{labels: {tier: front}, annotations: {note: old}}`, main: `{volumeMounts: [{name: fields, mountPath: /fields}, {name: state, mountPath: /state, subPath: a/b}], lifecycle: {preStop: {exec: {command: [sh, -c, "echo no; exit 3"]}}}}`,
			spec: `volumes: [{name: state, emptyDir: {}}, {name: fields, downwardAPI: {items: [{path: tier, fieldRef: {fieldPath: "metadata.labels['tier']"}}, {path: note, fieldRef: {fieldPath: "metadata.annotations['note']"}}]}}]`,
			do:   `k label pod $POD tier=back --overwrite; k annotate pod $POD note=changed --overwrite; k exec $POD -- sh -c 'until test "$(cat /fields/tier /fields/note)" = backchanged; do sleep 1; done'; k get pods -l tier=back -o name`},
		{name: "sub-path", on: "labels", do: `k exec $POD -- sh -c 'echo x > /state/x; ls /state'`},
		{name: "pre-stop-fails", on: "labels", do: `k delete pod $POD`, then: ".", chance: "Killing|FailedPreStopHook"}, // as evicted

		// What makes pods.
		{name: "deployment", bare: true, also: replicated("apps/v1", "Deployment", "deployment", "replicas: 1"), chance: "Killing", // as evicted
			do: `k set env deployment/deployment A=B; k rollout status deployment/deployment > /dev/null && echo there; k scale deployment/deployment --replicas=2; k wait deployment/deployment --for=jsonpath='{.status.readyReplicas}'=2 --timeout=300s; k rollout history deployment/deployment`},
		{name: "statefulset", bare: true, also: replicated("apps/v1", "StatefulSet", "statefulset", "replicas: 2, serviceName: statefulset"), do: `k rollout status statefulset/statefulset | tail -1; k exec statefulset-1 -- hostname`},
		{name: "job", bare: true, also: job("job", "backoffLimit: 0", "echo done"), shows: "^Succeeded", do: `k wait job/job --for=condition=Complete --timeout=300s; k logs job/job; k get job job -o jsonpath='{range .status.conditions[*]}{.type} {.status} {.reason}{"\n"}{end}'`},
		{name: "job-fails", bare: true, also: job("job-fails", "backoffLimit: 0", "exit 1"), shows: "^Failed", do: `k wait job/job-fails --for=condition=Failed --timeout=300s; k get job job-fails -o jsonpath='{range .status.conditions[*]}{.type} {.status} {.reason} {.message}{"\n"}{end}'`},
		{name: "job-indexed", bare: true, also: job("job-indexed", "completions: 2, parallelism: 2, completionMode: Indexed", "echo $JOB_COMPLETION_INDEX of $(hostname)"), shows: "^Succeeded.*\nSucceeded", do: `k wait job/job-indexed --for=condition=Complete --timeout=300s; k logs -l job-name=job-indexed | sort`},
		{name: "cronjob", bare: true, also: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: cronjob, namespace: NAMESPACE}, spec: {schedule: "0 0 1 1 *", jobTemplate: ` + jobSpec("backoffLimit: 0", "echo now") + `}}`, shows: ".*",
			do: `k create job --from=cronjob/cronjob cronjob-1; k wait job/cronjob-1 --for=condition=Complete --timeout=300s; k logs job/cronjob-1`, then: "^Succeeded"},
		{name: "deployment-broken", bare: true, also: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: deployment-broken, namespace: NAMESPACE}, spec: {progressDeadlineSeconds: 5, selector: {matchLabels: {app: broken}}, template: {metadata: {labels: {app: broken}}, spec: {automountServiceAccountToken: false, terminationGracePeriodSeconds: 0, nodeSelector: {kubernetes.io/hostname: NODE}, containers: [{name: main, image: "bed.example.com/nothing:1", imagePullPolicy: Never}]}}}}`,
			shows: "ErrImageNeverPull", do: `{ no k rollout status deployment/deployment-broken --timeout=240s 2>&1; } | tail -2; k get deployment deployment-broken -o jsonpath='{range .status.conditions[*]}{.type} {.status} {.reason} {.message}{"\n"}{end}' | sort`},
	}
}

// replicated is a Deployment or StatefulSet.
func replicated(version, kind, name, spec string) string {
	return `{apiVersion: ` + version + `, kind: ` + kind + `, metadata: {name: ` + name + `, namespace: NAMESPACE}, spec: {` + spec + `, selector: {matchLabels: {app: ` + name + `}}, template: {metadata: {labels: {app: ` + name + `}}, spec: {automountServiceAccountToken: false, terminationGracePeriodSeconds: 0, nodeSelector: {kubernetes.io/hostname: NODE}, containers: [{name: main, image: IMAGE, imagePullPolicy: Never}]}}}}`
}

func job(name, spec, command string) string {
	return `{apiVersion: batch/v1, kind: Job, metadata: {name: ` + name + `, namespace: NAMESPACE}, spec: ` + jobSpec(spec, command)[len("{spec: "):]
}

func jobSpec(spec, command string) string {
	return `{spec: {` + spec + `, template: {spec: {restartPolicy: Never, automountServiceAccountToken: false, nodeSelector: {kubernetes.io/hostname: NODE}, containers: [{name: main, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, "` + command + `"]}]}}}}`
}
