# SPDX-License-Identifier: Apache-2.0
"""Feature gates that controllers built on k8s.io/cloud-provider accept, and that have no meaning here.

They belong to the libraries of such a controller. The names are those that k8s.io/apiserver, component-base,
controller-manager and cloud-provider declare in v0.30, v0.34, v0.36 and v0.37, and the groups AllAlpha and AllBeta.
"""

from __future__ import annotations

UPSTREAM = frozenset(
    # One name a line, so that a comparison with the sources of a new minor is a diff.
    """
    APIListChunking
    APIPriorityAndFairness
    APIResponseCompression
    APIServerIdentity
    APIServerTracing
    APIServerWebhookAuthenticationToken
    APIServingWithRoutine
    AdmissionWebhookMatchConditions
    AggregatedDiscoveryEndpoint
    AggregatedDiscoveryRemoveBetaType
    AllAlpha
    AllBeta
    AllowParsingUserUIDFromCertAuth
    AllowUnsafeMalformedObjectDeletion
    AnonymousAuthConfigurableEndpoints
    AuthorizeWithSelectors
    BtreeWatchCache
    CBORServingAndStorage
    CloudDualStackNodeIPs
    ComponentFlagz
    ComponentSLIs
    ComponentStatusz
    ConcurrentWatchObjectDecode
    ConsistentListFromCache
    ConsistentListFromCacheSkipTimeoutFallback
    ConstrainedImpersonation
    ContextualLogging
    CoordinatedLeaderElection
    CustomResourceValidationExpressions
    DeclarativeValidation
    DeclarativeValidationBeta
    DeclarativeValidationTakeover
    DetectCacheInconsistency
    EfficientWatchResumption
    EtcdRangeStream
    ExcludeAdmissionWebhookVirtualResources
    InPlacePodVerticalScaling
    KMSv1
    KMSv2
    KMSv2KDF
    ListFromCacheSnapshot
    LoggingAlphaOptions
    LoggingBetaOptions
    LoggingStableOptions
    ManifestBasedAdmissionControlConfig
    MutatingAdmissionPolicy
    NativeHistograms
    OpenAPIEnums
    RemainingItemCount
    RemoteRequestHeaderUID
    ResilientWatchCacheInitialization
    RetryGenerateName
    SeparateCacheWatchRPC
    ServerSideApply
    ServerSideFieldValidation
    ShardedListAndWatch
    SizeBasedListCostEstimate
    StableLoadBalancerNodeSet
    StorageVersionAPI
    StorageVersionHash
    StreamingCollectionEncodingToJSON
    StreamingCollectionEncodingToProtobuf
    StrictCostEnforcementForVAP
    StrictCostEnforcementForWebhooks
    StructuredAuthenticationConfiguration
    StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics
    StructuredAuthorizationConfiguration
    TokenRequestServiceAccountUIDValidation
    UnauthenticatedHTTP2DOSMitigation
    UnknownVersionInteroperabilityProxy
    ValidatingAdmissionPolicy
    WatchBookmark
    WatchCacheInitializationPostStartHook
    WatchFromStorageWithoutResourceVersion
    WatchList
    WatchListCompression
    WebhookRoundTripLoadBalancing
    ZeroLimitedNominalConcurrencyShares
    """.split()  # noqa: SIM905
)
