#pragma once
// Environment variables between agent, probe and helper processes, and of tests. Those that stand for flags are made by
// cli/options/environment.cc.

namespace lockstep::env {

inline constexpr char kSegment[] = "LOCKSTEP_SEGMENT";       // Path of the slot's shared segment.
inline constexpr char kTestClock[] = "LOCKSTEP_TEST_CLOCK";  // ParseClockDistortion's argument.
inline constexpr char kTorchOps[] =
    "LOCKSTEP_HOOKS_OPERATORS";  // "1": PyTorch's operators as ranges (runtime/python); "2": with shapes.
inline constexpr char kCupti[] = "LOCKSTEP_CUPTI";  // libcupti to load if the process has none.
inline constexpr char kNvml[] = "LOCKSTEP_NVML";    // NVML library the agent uses instead of the driver's.
inline constexpr char kGpuRawDir[] =
    "LOCKSTEP_GPU_RAW_DIR";  // Where CUPTI's buffers are copied to (runtime/cupti/raw_file.h).
// The NCCL profiler plugin that the user had set (NCCL_PROFILER_PLUGIN's value): called beside ours.
inline constexpr char kNcclPluginChained[] = "LOCKSTEP_NCCL_PLUGIN_CHAINED";
// Milliseconds that tests let one wait for a lock whose holder does nothing (trace/file/lock_file.h).
inline constexpr char kTestLockWait[] = "LOCKSTEP_TEST_LOCK_WAIT_MS";
inline constexpr char kLibraryDir[] = "LOCKSTEP_LIBRARY_DIR";  // Where liblockstep.so is, if not beside the CLI.
// Of one run of a job by `lockstep tune`, with settings changed (runtime/agent/slot/trial.h).
inline constexpr char kTrialVariables[] = "LOCKSTEP_TRIAL_VARIABLES";  // "NAME=VALUE,..": the agent sets them.
inline constexpr char kTrialTorch[] = "LOCKSTEP_TRIAL_TORCH";          // "SETTING=VALUE,..": PyTorch's hooks do.
inline constexpr char kTrialSteps[] = "LOCKSTEP_TRIAL_STEPS";  // The agent ends the application after so many steps.

// Names that no flag's variable may have (tests/e2e/commands).
inline constexpr const char* kInternal[] = {kSegment,   kTestClock,      kCupti,        kNvml,
                                            kGpuRawDir, kLibraryDir,     kTestLockWait, kNcclPluginChained,
                                            kTorchOps,  kTrialVariables, kTrialTorch,   kTrialSteps};

}  // namespace lockstep::env
