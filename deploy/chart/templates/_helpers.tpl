{{/* Names and labels. They equal those of Karpenter's own chart: selectors of a Deployment can never change. */}}

{{- define "karpenter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "karpenter.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "karpenter.serviceAccountName" -}}
{{- $default := ternary (include "karpenter.fullname" .) "default" (eq (toString .Values.serviceAccount.create) "true") }}
{{- default $default .Values.serviceAccount.name }}
{{- end }}

{{- define "karpenter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "karpenter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "karpenter.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "karpenter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels and annotations of an object; call with the list of context, further labels, further annotations. */}}
{{- define "karpenter.metadata" -}}
{{- $context := index . 0 -}}
{{- $labels := index . 1 -}}
{{- $annotations := merge (dict) (index . 2) $context.Values.additionalAnnotations -}}
labels:
  {{- include "karpenter.labels" $context | nindent 2 }}
  {{- with $labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "karpenter.image" -}}
{{- $image := .Values.controller.image -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* Values may be booleans or, from other tools, the words; answers "true" or nothing. */}}
{{- define "karpenter.isTrue" -}}
{{- if eq (toString .) "true" }}true{{ end }}
{{- end }}

{{/* Gives each item of a list that has no labelSelector that of the pods. Call with the list of context and items. */}}
{{- define "karpenter.selecting" -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "karpenter.selectorLabels" (index . 0) | fromYaml)) }}
{{- $items := list }}
{{- range index . 1 }}
{{- if hasKey . "labelSelector" }}
{{- $items = append $items . }}
{{- else }}
{{- $items = append $items (merge (dict) . $selector) }}
{{- end }}
{{- end }}
{{- toYaml $items }}
{{- end }}

{{/* The affinity, with the pods' selector where a required pod (anti-)affinity names none. */}}
{{- define "karpenter.affinity" -}}
{{- $context := . }}
{{- $affinity := deepCopy .Values.affinity }}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- range $kind := list "podAffinity" "podAntiAffinity" }}
{{- with get $affinity $kind }}
{{- with get . $required }}
{{- $_ := set (get $affinity $kind) $required (include "karpenter.selecting" (list $context .) | fromYamlArray) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{/* The containers beside the controller, each with its own volume mounts, the controller's and the sidecars'. */}}
{{- define "karpenter.sidecars" -}}
{{- $controller := .Values.controller }}
{{- $mounts := concat (default list $controller.extraVolumeMounts) (default list $controller.sidecarVolumeMounts) }}
{{- $sidecars := list }}
{{- range $controller.sidecarContainer }}
{{- $all := concat (default list .volumeMounts) $mounts }}
{{- $sidecars = append $sidecars (merge (dict "volumeMounts" $all) .) }}
{{- end }}
{{- toYaml $sidecars }}
{{- end }}
