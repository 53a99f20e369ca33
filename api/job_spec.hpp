#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "pipeline/core/spec_sections.hpp"

namespace distilld {

/// What a job does: train a student, or write the teacher's answers for a dataset into a store.
enum class JobKind { train, generate };
BOOST_DESCRIBE_ENUM(JobKind, train, generate)

/// Limit of files and patterns per dataset.
inline constexpr std::size_t kMaxDatasetFiles = 4096;
/// Limit of teachers per job.
inline constexpr std::size_t kMaxTeachers = 16;

inline constexpr std::array kStoreFormatChoices{"auto", "full", "topk", "packed", "topp", "sampled"};
inline constexpr std::array kStoreValuesChoices{"f16", "f32", "u8", "bf16"};

struct EvalSpec {
    std::uint64_t max_rows = 0;               ///< rows of the held-out set to evaluate, from the first; 0 = all
    bool ask_teacher = true;                  ///< ask the teacher about the held-out rows, for KL and agreement
    std::vector<std::string> sample_prompts;  ///< prompts that the student continues at each evaluation
    std::uint32_t sample_tokens = 32;         ///< tokens per continuation
    double sample_temperature = 0.0;          ///< 0 = the most likely token
    std::vector<std::string> command;         ///< program and arguments that judge an exported student; empty = none
    std::uint64_t every_steps = 0;            ///< between two runs of command; 0 = at the end only
    double command_timeout_secs = 600;        ///< of one run
};

/// Other places for the metrics of a run; empty = none.
struct MetricsSpec {
    std::string tensorboard_dir;  ///< folder of TensorBoard event files
    std::string jsonl_file;       ///< one JSON object per line
    std::string mlflow_url;       ///< URL of an MLflow tracking server
    std::string otlp_url;         ///< URL of an OpenTelemetry collector; empty = as the environment says
};

/// Limit of ranks on all nodes of a job.
inline constexpr std::uint32_t kMaxPlacedRanks = 1024;

/// What a cluster gives to the job. The service reads it; a worker does not.
struct PlacementSpec {
    std::uint32_t nodes = 1;
    std::uint32_t ranks_per_node = 1;
    std::uint32_t cores = 0;                       ///< per rank; 0 = one per thread
    std::uint64_t memory = 0;                      ///< bytes per node; 0 = as the cluster says
    std::uint32_t gpus = 0;                        ///< per node
    std::string partition;                         ///< empty = the cluster's default
    std::chrono::milliseconds time_limit{};        ///< 0 = the partition's
    std::map<std::string, std::string> options{};  ///< further options of the cluster by name, such as "account"

    [[nodiscard]] std::uint32_t ranks() const noexcept { return nodes * ranks_per_node; }
};

/// Limit of the tasks of a generate job.
inline constexpr std::uint32_t kMaxTasks = 1024;

struct JobSpec {
    std::string name = "job";
    JobKind kind = JobKind::train;
    std::uint32_t tasks = 1;  ///< jobs of a service that share a generate job
    bool tasks_auto = false;  ///< as many as there is room for; the service replaces it by the number
    StudentSpec student;
    /// By name: those of /teachers (each row of the data names one), or that of /teacher with an empty name.
    std::map<std::string, TeacherSpec> teachers;
    DatasetSpec dataset;
    std::optional<RolloutSpec> rollout;
    TrainingSpec training;
    EvalSpec eval;
    CheckpointSpec checkpoint;
    MetricsSpec metrics;
    std::optional<PlacementSpec> placement;
    std::string output;      ///< for a generate job, the store
    bool resume = true;      ///< continue from the newest checkpoint of the same run, if there is one
    bool overwrite = false;  ///< allows replacing checkpoints and a model of another run

    /// Without a teacher the job is plain training on the data.
    [[nodiscard]] bool has_teacher() const noexcept { return !teachers.empty(); }
    /// The teacher of /teacher; null if there is none, or if the spec uses /teachers.
    [[nodiscard]] const TeacherSpec* teacher() const { return teachers.contains("") ? &teachers.at("") : nullptr; }
    [[nodiscard]] TeacherSpec* teacher() { return teachers.contains("") ? &teachers.at("") : nullptr; }
    /// Whether the spec uses /teachers: each row of the data names its own.
    [[nodiscard]] bool names_teachers() const { return has_teacher() && !teachers.rbegin()->first.empty(); }
};

}  // namespace distilld
