package main

// differ are the versions that differ most from the usual one, and from each other: the oldest, without sharded channels;
// the one that loses answers behind AUTH, and has a script's sharded push in its own slot alone; and the newest.
var differ = []string{"redis-6.2", "redis-7.4", "valkey-9.1"}

// ring is the server ring: the tests whose result the version of a server can change, by package. Scripts and what they
// leave, the handshake, AUTH, pushes, TLS, the words of errors, and the phrases of clusters and Sentinels. A test that
// belongs here starts a server, is deterministic, and takes a few seconds at most.
var ring = map[string][]string{
	"slot": {"TestSlotAgreesWithARealRedisServer"},
	"node": {
		"TestBatchWithoutItsScriptIsRepairedCallByCall", "TestClassifyARealServer", "TestCommandThatAScriptMayNotCallIsNamed",
		"TestEveryCallHasItsOwnAnswerUnderKills", "TestForbiddenScriptLoadIsDoneWithout",
		"TestInboxDeliversAndComesBack", "TestKeyThatIsNotPermittedFailsAlone", "TestNoErrorOrLogHoldsTheSecret",
		"TestRepliesOfEveryShape", "TestScriptOfSomebodyElseIsRefused", "TestScriptsAreLoadedAndRepaired",
		"TestServerThatMayNotLoadScriptsGetsNoBatches", "TestTLSWithACLUser", "TestWrongScriptKeepsTheMemberDown",
		"TestSignsOfAServerThatWasAReplica",
	},
	"node/internal/guard": {"TestGuardScriptsDoWhatTheProtocolSays"},
	"cluster": {
		"TestBatchAtAMasterOfSomeOfItsSlots", "TestBatchAtAMasterThatServesNothingNow", "TestCertificateThatIsRefusedIsSaidSo",
		"TestPushesAreShardedWhereTheServersCan",
		"TestMasterThatSentinelsReplaceDoesNotVoteUntilTheLongestLeaseHasEnded", "TestNoWaitIsSentUnlessItIsAskedFor",
		"TestSlotIsMovedUnderItsContenders", "TestUserOfOneEnvironmentDoesEverythingThereInACluster",
		"TestReplicaThatTakesOverDoesNotVoteUntilTheLongestLeaseHasEnded", "TestSentinelsThatLieAreDeadOrKnowNothing",
		"TestUserOfTheShippedRulesDoesEverythingInAClusterOverMutualTLS",
		"TestUserOfTheShippedRulesDoesEverythingWithSentinels", "TestVoteThatNoReplicaHasAcknowledgedDoesNotCount",
	},
	"redlock": {
		"TestBatchAtAMemberThatForgot", "TestBatchesDoWhatTheProtocolSays", "TestBatchDrawsTheTokensOfFreeLocks", "TestBatchHandsOver",

		"TestElectionScriptsDoWhatTheProtocolSays", "TestEveryScriptIsLoadedOnceConnected", "TestItemThatIsRefusedLeavesNothingAndEndsNothing",
		"TestLatchScriptsDoWhatTheProtocolSays", "TestLocksOverASocketInADatabaseUnderAName", "TestPasswordsThatChangeCostNoLease",
		"TestReadWriteScriptsDoWhatTheProtocolSays", "TestScriptEndsWhereTheServerRefusesToWrite", "TestScriptsBesideTheReferenceSystem",
		"TestScriptsDoWhatTheProtocolSays", "TestScriptsOfTheSemaphoreDoWhatTheProtocolSays",

		"TestUserOfOneEnvironmentCanDoEverythingThereAndNothingElsewhere", "TestUserWhoMayNotSubscribeIsTold",
		"TestUserWithTheListedPermissionsCanDoEverything", "TestUserWithTheListedPermissionsCanShareLocks",
		"TestUserWithoutInfoIsToldThatItIsNeeded",
		"TestWithoutCLIENTAndPUBLISHLocksWorkAndTheRiskIsSaid",
		"TestAdoptMovesWhatTheLeaseHasAndNothingElse", "TestWhoHoldsSomethingKeepsItAtAFullServer",
		"TestWrongPasswordIsSaidToBeThatAndIsNotTold",
	},
	"fence/fenceredis":            {"TestCommandsAnswerThroughTheGuard", "TestDamagedKeyAcceptsNobody", "TestServerIsAGuard"},
	"internal/redistest":          {"TestRealConforms", "TestRealPersistence"},
	"cmd/redlock":                 {"TestCommandsKnowAClusterAsAMember", "TestMembersWithTLS", "TestScripts"},
	"cmd/redlock/internal/doctor": {"TestEachMissingPermissionHasItsSeverityAndCure", "TestWhatTheUserLacksIsFoundByTrying"},
}
