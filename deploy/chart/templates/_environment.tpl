{{/* The controller's environment: one variable for each setting, whatever its value. */}}

{{/* A value as the controller reads it. Numbers from YAML are floating, which Go would print as 1e+06. */}}
{{- define "karpenter.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if kindIs "map" . }}{{ if . }}{{ toJson . }}{{ end }}
{{- else if and (kindIs "float64" .) (eq (toString .) (toString (floor .))) }}{{ int64 . }}
{{- else if not (kindIs "invalid" .) }}{{ . }}
{{- end }}
{{- end }}

{{/* Feature gates as the controller reads them: nodeRepair becomes NodeRepair=false. */}}
{{- define "karpenter.featureGates" -}}
{{- $gates := list }}
{{- range $name, $value := . }}
{{- $gates = append $gates (printf "%s%s=%v" (upper (substr 0 1 $name)) (substr 1 -1 $name) $value) }}
{{- end }}
{{- join "," $gates }}
{{- end }}

{{- define "karpenter.environment" -}}
{{- $settings := .Values.settings }}
{{- $variables := dict
  "CLUSTER_NAME" $settings.clusterName
  "CLUSTER_ENDPOINT" $settings.clusterEndpoint
  "CLUSTER_CA_BUNDLE" $settings.clusterCABundle
  "INTERRUPTION_QUEUE" $settings.interruptionQueue
  "BATCH_MAX_DURATION" $settings.batchMaxDuration
  "BATCH_IDLE_DURATION" $settings.batchIdleDuration
  "PREFERENCE_POLICY" $settings.preferencePolicy
  "MIN_VALUES_POLICY" $settings.minValuesPolicy
  "VM_MEMORY_OVERHEAD_PERCENT" $settings.vmMemoryOverheadPercent
  "RESERVED_ENIS" $settings.reservedENIs
  "ISOLATED_VPC" $settings.isolatedVPC
  "EKS_CONTROL_PLANE" $settings.eksControlPlane
  "DISABLE_DRY_RUN" $settings.disableDryRun
  "ENABLE_ZONAL_SHIFT" $settings.enableZonalShift
  "AMI_REFRESH_INTERVAL" $settings.amiRefreshInterval
  "SUBNET_REFRESH_INTERVAL" $settings.subnetRefreshInterval
  "IGNORE_DRA_REQUESTS" $settings.ignoreDRARequests
  "DISABLE_CLUSTER_STATE_OBSERVABILITY" $settings.disableClusterStateObservability
  "SCHEDULER_CONFIG" $settings.schedulerConfig
  "DISABLE_LEADER_ELECTION" $settings.disableLeaderElection
  "LEADER_ELECTION_NAME" $settings.leaderElectionName
  "LEADER_ELECTION_NAMESPACE" $settings.leaderElectionNamespace
  "FEATURE_GATES" (include "karpenter.featureGates" $settings.featureGates)
  "AWS_FEATURE_GATES" (include "karpenter.featureGates" $settings.awsFeatureGates)
  "METRICS_PORT" .Values.controller.metrics.port
  "HEALTH_PROBE_PORT" .Values.controller.healthProbe.port
  "LOG_LEVEL" .Values.logLevel
  "LOG_OUTPUT_PATHS" .Values.logOutputPaths
  "LOG_ERROR_OUTPUT_PATHS" .Values.logErrorOutputPaths
}}
{{- /* Only a pod can know these: its namespace, its node, its CPU request in millicores. */}}
{{- $cpu := dict "containerName" .Values.controller.containerName "resource" "requests.cpu" "divisor" "1m" }}
{{- $downward := dict
  "POD_NAMESPACE" (dict "fieldRef" (dict "fieldPath" "metadata.namespace"))
  "NODE_NAME" (dict "fieldRef" (dict "fieldPath" "spec.nodeName"))
  "CPU_REQUESTS" (dict "resourceFieldRef" $cpu)
}}
{{- $environment := list }}
{{- $replaced := list }}
{{- range .Values.controller.env }}
{{- $replaced = append $replaced .name }}
{{- end }}
{{- range $name, $value := $variables }}
{{- $text := include "karpenter.text" $value }}
{{- if and $text (not (has $name $replaced)) }}
{{- $environment = append $environment (dict "name" $name "value" $text) }}
{{- end }}
{{- end }}
{{- range $name, $source := $downward }}
{{- if not (has $name $replaced) }}
{{- $environment = append $environment (dict "name" $name "valueFrom" $source) }}
{{- end }}
{{- end }}
{{- toYaml (concat $environment (default list .Values.controller.env)) }}
{{- end }}

{{/*
Variables that an upgrade loses, as a JSON list: helm merges lists by name, and takes what was there twice and is there once
for removed. Karpenter's chart sets some variables beside those of controller.env.
*/}}
{{- define "karpenter.lostVariables" -}}
{{- $seen := list }}
{{- $twice := list }}
{{- $deployment := lookup "apps/v1" "Deployment" .Release.Namespace (include "karpenter.fullname" .) }}
{{- range dig "spec" "template" "spec" "containers" list (default dict $deployment) }}
{{- if eq .name $.Values.controller.containerName }}
{{- range .env }}
{{- if has .name $seen }}{{ $twice = append $twice .name }}{{ end }}
{{- $seen = append $seen .name }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson (uniq $twice) }}
{{- end }}
