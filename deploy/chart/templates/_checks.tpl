{{/*
What is refused before anything is created, in sentences. values.schema.json sees to types; it cannot suggest, so names are
checked here, against files/known-values.txt, which a test holds equal to the schema.
*/}}

{{- define "karpenter.checks" -}}
{{- include "karpenter.checkNames" . }}
{{- include "karpenter.checkSettings" . }}
{{- if ne (toString .Values.checkCustomResourceDefinitions) "false" }}
{{- include "karpenter.checkDefinitions" . }}
{{- end }}
{{- end }}

{{/* Settings that make no sense, alone or together. */}}
{{- define "karpenter.checkSettings" -}}
{{- $settings := .Values.settings }}
{{- if not (include "karpenter.text" $settings.clusterName) }}
{{- fail "settings.clusterName is not set. Give it the name of the EKS cluster, for example --set settings.clusterName=my-cluster" }}
{{- end }}
{{- if and (include "karpenter.isTrue" $settings.disableLeaderElection) (gt (int .Values.replicas) 1) }}
{{- fail (printf "settings.disableLeaderElection is true and replicas is %v: all of them would act at once. Set replicas to 1, or leave leader election on" .Values.replicas) }}
{{- end }}
{{- end }}

{{/* Refuses names that are not in the list, each with the nearest that is. */}}
{{- define "karpenter.checkNames" -}}
{{- $kinds := dict }}
{{- range .Files.Lines "files/known-values.txt" }}
{{- $parts := splitList "." . }}
{{- range $count := untilStep 1 (len $parts) 1 }}
{{- $_ := set $kinds (join "." (slice $parts 0 $count)) "group" }}
{{- end }}
{{- if . }}{{ $_ := set $kinds . "value" }}{{ end }}
{{- end }}
{{- $unknown := include "karpenter.unknownNames" (dict "values" .Values "prefix" "" "kinds" $kinds) | fromJsonArray }}
{{- $sentences := list }}
{{- range $unknown }}
{{- $sentences = append $sentences (include "karpenter.suggestion" (dict "name" . "known" (keys $kinds | sortAlpha))) }}
{{- end }}
{{- if $sentences }}
{{- fail (printf "unknown values:\n  %s\n`helm show values` prints those that the chart knows" (join "\n  " $sentences)) }}
{{- end }}
{{- end }}

{{/* The paths of `values` that `kinds` does not have, as a JSON list. */}}
{{- define "karpenter.unknownNames" -}}
{{- $unknown := list }}
{{- range $key, $value := .values }}
{{- $path := printf "%s%s" $.prefix $key }}
{{- $kind := get $.kinds $path }}
{{- if not $kind }}
{{- $unknown = append $unknown $path }}
{{- else if and (eq $kind "group") (kindIs "map" $value) }}
{{- $inner := dict "values" $value "prefix" (printf "%s." $path) "kinds" $.kinds }}
{{- $unknown = concat $unknown (include "karpenter.unknownNames" $inner | fromJsonArray) }}
{{- end }}
{{- end }}
{{- toJson $unknown }}
{{- end }}

{{/* A sentence about an unknown name: the known one whose last word is nearest, of the same group if two are as near. */}}
{{- define "karpenter.suggestion" -}}
{{- $last := splitList "." .name | last }}
{{- $group := splitList "." .name | initial }}
{{- /* Three letters in ten may differ: enough for a slip or two, too few for another word. */}}
{{- $limit := max 1 (div (mul 3 (len $last)) 10) }}
{{- $best := dict "score" (add1 (add1 (mul 2 $limit))) "name" "" }}
{{- range .known }}
{{- $other := splitList "." . | last }}
{{- $difference := sub (len $last) (len $other) }}
{{- if and (le $difference $limit) (ge $difference (mul -1 $limit)) }}
{{- $distance := include "karpenter.distance" (list (lower $last) (lower $other)) | int64 }}
{{- $elsewhere := ternary 0 1 (eq (toJson $group) (splitList "." . | initial | toJson)) }}
{{- $score := add (mul 2 $distance) $elsewhere }}
{{- if and (le $distance $limit) (lt $score (get $best "score")) }}
{{- $best = dict "score" $score "name" . }}
{{- end }}
{{- end }}
{{- end }}
{{- .name }}
{{- with get $best "name" }}: did you mean {{ . }}?{{ end }}
{{- end }}

{{/* How many letters have to be added, removed or replaced to make one word of a list of two the other (Levenshtein). */}}
{{- define "karpenter.distance" -}}
{{- $from := splitList "" (index . 0) }}
{{- $to := splitList "" (index . 1) }}
{{- $row := until (int (add1 (len $to))) }}
{{- range $i, $letter := $from }}
{{- $next := list (add1 $i) }}
{{- range $j, $other := $to }}
{{- $replaced := add (index $row $j) (ternary 0 1 (eq $letter $other)) }}
{{- $next = append $next (min $replaced (add1 (last $next)) (add1 (index $row (int (add1 $j))))) }}
{{- end }}
{{- $row = $next }}
{{- end }}
{{- last $row }}
{{- end }}

{{/*
Compares the definitions in the cluster with those in crds/. They are of another version if they do not store the version
that ours stores, or lack fields of it: the API server drops fields that it does not know, so the controller would write and
read them in vain. Further fields do no harm, so Karpenter's own definitions of a compatible release pass. Where there is no
cluster to ask (helm template), or the definition is not there yet, nothing is compared.
*/}}
{{- define "karpenter.checkDefinitions" -}}
{{- $complaints := list }}
{{- range $path, $_ := .Files.Glob "crds/*.yaml" }}
{{- $ours := $.Files.Get $path | fromYaml }}
{{- $name := $ours.metadata.name }}
{{- $theirs := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- if $theirs }}
{{- with include "karpenter.definitionComplaint" (dict "ours" $ours "theirs" $theirs) }}
{{- $complaints = append $complaints (printf "%s %s" $name .) }}
{{- end }}
{{- else if and $.Release.IsUpgrade (lookup "v1" "Namespace" "" "kube-system") }}
{{- /* An install creates what is missing; an upgrade does not. */}}
{{- $complaints = append $complaints (printf "%s is not there" $name) }}
{{- end }}
{{- end }}
{{- if $complaints }}
{{- fail (printf "CustomResourceDefinitions in the cluster do not go with karpenter %s:\n  %s\nNothing was changed in the release. Bring them up to date first, with the chart karpenter-crd of this version or with `kubectl apply --server-side --force-conflicts -f crds/` in this chart's folder. checkCustomResourceDefinitions=false leaves this check out" $.Chart.AppVersion (join "\n  " $complaints)) }}
{{- end }}
{{- end }}

{{/* What is wrong with a definition; nothing if it goes with ours. */}}
{{- define "karpenter.definitionComplaint" -}}
{{- range $ours := .ours.spec.versions }}
{{- if $ours.storage }}
{{- $same := dict }}
{{- $names := list }}
{{- range $.theirs.spec.versions }}
{{- $names = append $names .name }}
{{- if and (eq .name $ours.name) .served .storage }}{{ $same = . }}{{ end }}
{{- end }}
{{- if not $same }}
{{- printf "does not serve and store version %s; it has %s" $ours.name (join ", " $names) }}
{{- else }}
{{- $schemas := dict "ours" $ours.schema.openAPIV3Schema "theirs" $same.schema.openAPIV3Schema "path" "" }}
{{- with include "karpenter.missingFields" $schemas | fromJsonArray }}
{{- $more := sub (len .) 5 }}
{{- printf "has no %s" (slice . 0 (min 5 (len .)) | join ", ") }}
{{- if gt $more 0 }}{{ printf " and %d more fields" $more }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The paths of fields that one schema has and the other lacks, as a JSON list. */}}
{{- define "karpenter.missingFields" -}}
{{- $missing := list }}
{{- $theirs := default dict .theirs }}
{{- if not (index $theirs "x-kubernetes-preserve-unknown-fields") }}
{{- range $name, $ours := .ours.properties }}
{{- $path := printf "%s%s" $.path $name }}
{{- $properties := default dict $theirs.properties }}
{{- if hasKey $properties $name }}
{{- $inner := dict "ours" $ours "theirs" (get $properties $name) "path" (printf "%s." $path) }}
{{- $missing = concat $missing (include "karpenter.missingFields" $inner | fromJsonArray) }}
{{- else }}
{{- $missing = append $missing $path }}
{{- end }}
{{- end }}
{{- range $within := list "items" "additionalProperties" }}
{{- $ours := get $.ours $within }}
{{- if kindIs "map" $ours }}
{{- $other := get $theirs $within }}
{{- $inner := dict "ours" $ours "theirs" (ternary $other dict (kindIs "map" $other)) "path" $.path }}
{{- $missing = concat $missing (include "karpenter.missingFields" $inner | fromJsonArray) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $missing }}
{{- end }}
