#include "api/spec_rules.hpp"

#include <boost/json/value.hpp>
#include <map>
#include <string>
#include <utility>

#include "api/spec_paths.hpp"
#include "pipeline/core/ranks/rank_rules.hpp"

namespace distilld::api {
namespace {

/// Whether the job trains. A generate job does not need the fields that only a train job requires.
bool trains(const SpecReading& reading) {
    return reading.spec.kind == JobKind::train;
}

void generating_takes_a_teacher(SpecReading& reading) {
    if (!trains(reading) && !reading.given("/teacher") && !reading.given("/teachers")) {
        reading.require("/teacher", "an object with endpoints or model_dir, and store");
    }
}

void tasks_share_a_store(SpecReading& reading) {
    const JobSpec& spec = reading.spec;
    if (trains(reading) && (spec.tasks > 1 || spec.tasks_auto)) {
        reading.violate("/tasks", "conflict",
                        "is for a generate job, and this one trains: leave it out, or set /kind to \"generate\" (ranks "
                        "of /placement train together)");
    }
}

/// An invalid path counts too, here and below; its own field reports it.
bool names_a_module(const SpecReading& reading) {
    constexpr std::string_view kField = "/teacher/module";
    return reading.given(kField) && (!reading.good.contains(kField) || !reading.spec.teacher()->module.empty());
}

bool names_a_model(const SpecReading& reading) {
    constexpr std::string_view kField = "/teacher/model_dir";
    return reading.given(kField) && (!reading.good.contains(kField) || !reading.spec.teacher()->model_dir.empty());
}

void answers_have_a_source(SpecReading& reading) {
    constexpr std::string_view kUrls = "a list of http or https URLs, such as [\"http://127.0.0.1:8600\"]";
    const bool endpoints = reading.given("/teacher/endpoints");
    const bool module = names_a_module(reading);
    const bool model = module || names_a_model(reading);
    const bool store = reading.given("/teacher/store");
    if (module && (endpoints || names_a_model(reading))) {
        reading.violate("/teacher/module", "conflict", "give one of endpoints, model_dir and module");
    } else if (endpoints && model) {
        reading.violate("/teacher/model_dir", "conflict", "give endpoints or model_dir, not both");
    } else if (!endpoints && !model && !trains(reading)) {
        reading.require("/teacher/endpoints", std::string(kUrls) + "; or give model_dir, the folder of a model");
    } else if (!endpoints && !model && !store) {
        reading.require("/teacher/endpoints", std::string(kUrls) +
                                                  "; or give model_dir, the folder of a model, or store, a folder of "
                                                  "stored answers");
    }
    if (!trains(reading) && !store) {
        reading.require("/teacher/store", "the folder for the teacher's answers");
    }
    const TeacherCache cache = reading.spec.teacher()->cache;
    if (trains(reading) && !store && (cache == TeacherCache::read || cache == TeacherCache::write)) {
        reading.violate("/teacher/cache", "conflict", "needs a store: give /teacher/store too");
    }
}

/// Checks what several teachers must have in common, because a micro-batch has one array of targets for all its rows.
void several_teachers_fit_together(SpecReading& reading) {
    if (reading.given("/teacher")) {
        reading.violate("/teachers", "conflict", "give teacher or teachers, not both");
    }
    if (!trains(reading)) {
        reading.violate("/teachers", "conflict",
                        "a generate job asks one teacher: give it as teacher, and a dataset with its rows alone (their "
                        "store serves the job with several teachers too)");
    }
    std::map<std::string, std::string> owners;  // owners of stores
    auto teachers = reading.spec.teachers;
    teachers.erase("");
    for (const auto& [name, teacher] : teachers) {
        const std::string pointer = "/teachers/" + name;
        const auto& [first_name, first] = *teachers.begin();
        if (teacher.targets == TargetsChoice::hidden) {
            reading.violate(pointer + "/targets", "conflict",
                            "is hidden, but a student can use the head of one teacher only: use topk or logits");
        }
        if ((teacher.top_k == 0) != (first.top_k == 0)) {
            reading.violate(pointer + "/top_k", "conflict",
                            "is " + std::to_string(teacher.top_k) + ", but " + std::to_string(first.top_k) + " of " +
                                first_name + ": all teachers send top-k rows, or none does");
        }
        if (!teacher.tokenizer.empty()) {
            reading.violate(pointer + "/tokenizer", "conflict", "is for a single /teacher");
        }
        if (teacher.store.empty()) {
            continue;
        }
        const auto [owner, is_new] = owners.emplace(normal_path(teacher.store).string(), name);
        if (!is_new) {
            reading.violate(pointer + "/store", "conflict", "is that of " + owner->second + ": each has its own");
        }
    }
}

/// placement, dtype and threads apply only to a model that computes in the process.
void computing_takes_a_model(SpecReading& reading) {
    if (names_a_model(reading) || names_a_module(reading)) {
        return;
    }
    const TeacherSpec defaults;
    const TeacherSpec& given = *reading.spec.teacher();
    const auto refuse = [&reading](bool said, const char* field) {
        if (said) {
            reading.violate(field, "conflict", "is for a teacher in the process: give /teacher/model_dir too");
        }
    };
    refuse(given.placement != defaults.placement, "/teacher/placement");
    refuse(given.dtype != defaults.dtype, "/teacher/dtype");
    refuse(given.threads != defaults.threads, "/teacher/threads");
}

/// A generate job writes only into the store, and requests several rows at a time.
void generating_has_its_own_defaults(SpecReading& reading) {
    constexpr std::uint32_t kRowsOfARequest = 8;
    if (trains(reading)) {
        return;
    }
    if (reading.spec.teacher() != nullptr) {
        reading.spec.output = reading.spec.teacher()->store;
    }
    if (!reading.given("/training/batch_size") || reading.spec.training.batch_size_auto) {
        reading.spec.training.batch_size = kRowsOfARequest;
        reading.spec.training.batch_size_auto = false;
    }
}

void generating_tells_no_figures(SpecReading& reading) {
    if (trains(reading)) {
        return;
    }
    const MetricsSpec& metrics = reading.spec.metrics;
    const std::pair<const char*, const std::string*> sinks[] = {{"/metrics/tensorboard_dir", &metrics.tensorboard_dir},
                                                                {"/metrics/jsonl_file", &metrics.jsonl_file},
                                                                {"/metrics/mlflow_url", &metrics.mlflow_url},
                                                                {"/metrics/otlp_url", &metrics.otlp_url}};
    for (const auto& [pointer, value] : sinks) {
        if (!value->empty()) {
            reading.violate(pointer, "conflict",
                            "receives the metrics of training steps, and a generate job has no steps: see its progress "
                            "instead");
        }
    }
}

/// With packing true, documents continue in the next row.
void overflow_is_of_rows_with_whole_documents(SpecReading& reading) {
    const DatasetSpec& dataset = reading.spec.dataset;
    if (dataset.overflow != Overflow::automatic && dataset.packing == Packing::joined) {
        reading.violate(
            "/dataset/overflow", "conflict",
            "applies only when rows hold whole documents; with /dataset/packing true, a document continues in the next "
            "row: leave it out, or set /dataset/packing to \"documents\" or false");
    }
}

void student_has_a_network(SpecReading& reading) {
    if (reading.given("/student/model") || !trains(reading)) {
        return;
    }
    if (reading.spec.student.init == StudentInit::pretrained) {
        reading.require("/student/model", "the Hugging Face folder of the student");
    } else if (!reading.given("/student/config")) {
        reading.require("/student/model", "init \"random\" needs a model folder or a config");
    }
}

/// An adapter needs existing, unchanged base weights.
void adapters_have_a_base(SpecReading& reading) {
    if (!reading.spec.student.lora) {
        return;
    }
    if (reading.spec.student.init == StudentInit::random) {
        reading.violate("/student/lora", "conflict",
                        "adapts existing weights, but init is random: leave out lora, or set init to \"pretrained\"");
    }
    if (reading.given("/student/config")) {
        reading.violate("/student/lora", "conflict",
                        "adapts the model as it is in its folder: leave out config, which would change it");
    }
}

void quantization_is_of_weights_that_learn(SpecReading& reading) {
    const StudentSpec& student = reading.spec.student;
    if (student.quantization == Quantization::none) {
        if (!student.quantize_modules.empty()) {
            reading.violate("/student/quantize_modules", "conflict",
                            "names modules to quantize: give quantization too");
        }
    } else if (reading.given("/student/lora")) {
        reading.violate("/student/quantization", "conflict",
                        "applies to trained weights, but lora freezes them: leave one of the two out");
    }
}

void run_has_one_length(SpecReading& reading) {
    const std::string first = "/training/" + std::string(kRunLength[0]);
    const std::string second = "/training/" + std::string(kRunLength[1]);
    const std::string both = std::string(kRunLength[0]) + " or " + std::string(kRunLength[1]);
    if (reading.given(first) && reading.given(second)) {
        reading.violate(second, "conflict", "give " + both + ", not both");
    } else if (!reading.given(first) && !reading.given(second) && trains(reading)) {
        reading.require(first, "give " + both);
    }
}

void targets_fit_top_k(SpecReading& reading) {
    if (reading.spec.teacher() == nullptr || !reading.good.contains("/teacher/targets")) {
        return;
    }
    const TeacherSpec& teacher = *reading.spec.teacher();
    const bool all_tokens = teacher.targets == TargetsChoice::logits || teacher.targets == TargetsChoice::hidden;
    if (teacher.targets == TargetsChoice::topk && teacher.top_k == 0) {
        reading.violate("/teacher/targets", "conflict", "is topk, but top_k does not say how many tokens");
    } else if (all_tokens && teacher.top_k > 0) {
        reading.violate("/teacher/targets", "conflict",
                        std::string("is ") + to_string(teacher.targets) + ", but top_k is above 0");
    } else if (teacher.targets == TargetsChoice::hidden && !teacher.store.empty()) {
        reading.violate("/teacher/targets", "conflict", "is hidden, but a store keeps no hidden states");
    }
}

void other_tokens_are_of_texts_and_topk_rows(SpecReading& reading) {
    const TeacherSpec* teacher = reading.spec.teacher();
    if (teacher == nullptr || teacher->tokenizer.empty()) {
        return;
    }
    if (teacher->targets == TargetsChoice::hidden || teacher->targets == TargetsChoice::logits) {
        reading.violate("/teacher/targets", "conflict",
                        std::string("is ") + to_string(teacher->targets) +
                            ", but with /teacher/tokenizer the teacher sends top-k rows: leave it out, and give top_k");
    } else if (teacher->top_k == 0 && !(reading.given("/teacher/top_k") && !reading.good.contains("/teacher/top_k"))) {
        reading.require("/teacher/top_k", "with /teacher/tokenizer the teacher sends top-k rows, such as 64");
    }
    if (reading.spec.dataset.packing == Packing::joined) {
        reading.violate("/dataset/packing", "conflict",
                        "with /teacher/tokenizer, documents are read by themselves: set it to \"documents\" or false");
    }
}

void teacher_has_one_key(SpecReading& reading) {
    if (reading.spec.teacher() != nullptr && !reading.spec.teacher()->api_key_env.empty() &&
        !reading.spec.teacher()->api_key_file.empty()) {
        reading.violate("/teacher/api_key_file", "conflict", "give api_key_env or api_key_file, not both");
    }
}

void distillation_has_a_teacher(SpecReading& reading) {
    const bool has_teacher = reading.given("/teacher") || reading.given("/teachers");
    if (!reading.given("/training/kd_ratio")) {
        reading.spec.training.kd_ratio = has_teacher ? 1.0 : 0.0;
    } else if (reading.good.contains("/training/kd_ratio") && reading.spec.training.kd_ratio > 0 && !has_teacher) {
        reading.violate("/training/kd_ratio", "conflict", "is above 0, but the spec has no teacher");
    }
}

void momentum_is_of_sgd(SpecReading& reading) {
    const TrainingSpec& training = reading.spec.training;
    if (reading.good.contains("/training/sgd_momentum") && training.sgd_momentum > 0 &&
        training.optimizer != OptimizerKind::sgd) {
        reading.violate("/training/sgd_momentum", "conflict",
                        std::string("is for sgd, but /training/optimizer is ") + to_string(training.optimizer));
    }
}

void ranks_share_the_groups(SpecReading& reading) {
    const auto conflict = conflict_of_ranks(reading.spec.student, reading.spec.training, reading.spec.training.ranks);
    if (conflict && reading.good.contains("/training/ranks")) {
        reading.violate(conflict->pointer, "conflict", conflict->why);
    }
}

/// A cluster starts these ranks, and each is one worker.
void placed_ranks_share_the_groups(SpecReading& reading) {
    const std::uint32_t ranks = reading.spec.placement->ranks();
    if (ranks <= 1) {
        return;
    }
    const char* const pointer = reading.spec.placement->nodes > 1 ? "/placement/nodes" : "/placement/ranks_per_node";
    if (!trains(reading)) {
        reading.violate(pointer, "conflict", "gives several ranks, but a generate job is one process: leave it out");
    } else if (ranks > kMaxPlacedRanks) {
        reading.violate(pointer, "conflict",
                        "gives " + std::to_string(ranks) + " ranks with /placement/ranks_per_node, but at most " +
                            std::to_string(kMaxPlacedRanks) + " train together");
    } else if (reading.spec.training.ranks > 1 && reading.spec.training.ranks != ranks) {
        reading.violate("/training/ranks", "conflict",
                        "is " + std::to_string(reading.spec.training.ranks) +
                            ", but /placement/nodes times /placement/ranks_per_node is " + std::to_string(ranks) +
                            ": give the same number, or leave it out");
    } else if (const auto conflict = conflict_of_ranks(reading.spec.student, reading.spec.training, ranks)) {
        reading.violate(conflict->pointer, "conflict", conflict->why);
    }
}

/// Both fields name the same number.
void held_out_rows_are_said_once(SpecReading& reading) {
    JobSpec& spec = reading.spec;
    const std::uint64_t older = spec.dataset.eval_rows;
    if (older > 0 && spec.eval.max_rows > 0 && older != spec.eval.max_rows) {
        reading.violate("/eval/max_rows", "conflict",
                        "is " + std::to_string(spec.eval.max_rows) + ", but /dataset/eval_rows, its old name, is " +
                            std::to_string(older) + ": give one of them");
    }
}

void sampling_belongs_to_an_evaluation(SpecReading& reading) {
    if (trains(reading) && !reading.spec.eval.sample_prompts.empty() && !reading.given("/dataset/eval")) {
        reading.violate("/eval/sample_prompts", "conflict", "samples are drawn at evaluations: give /dataset/eval too");
    }
}

void interval_is_of_a_command(SpecReading& reading) {
    const EvalSpec& eval = reading.spec.eval;
    if (eval.every_steps > 0 && eval.command.empty() && !reading.given("/eval/command")) {
        reading.violate("/eval/every_steps", "conflict",
                        "is the interval of /eval/command: give that too, or /training/eval_steps for evaluations on "
                        "/dataset/eval");
    }
}

void output_is_not_the_model(SpecReading& reading) {
    const auto& model = reading.spec.student.model;
    if (reading.good.contains("/output") && !model.empty() && normal_path(reading.spec.output) == normal_path(model)) {
        reading.violate("/output", "conflict", "is the folder of student.model, which would be overwritten");
    }
}

constexpr SpecRule kRules[] = {
    {"/kind", generating_takes_a_teacher},
    {"/tasks", tasks_share_a_store},
    {"/student/device", student_has_a_network},
    {"/dataset/overflow", overflow_is_of_rows_with_whole_documents},
    {"/student/quantize_modules", quantization_is_of_weights_that_learn},
    {"/student/lora/merge", adapters_have_a_base},
    {"/teacher/store_samples", answers_have_a_source},
    {"/teachers", several_teachers_fit_together},
    {"/teacher/threads", computing_takes_a_model},
    {"/training/epochs", run_has_one_length},
    {"/teacher/targets", targets_fit_top_k},
    {"/teacher/api_key_file", teacher_has_one_key},
    {"/training/kd_ratio", distillation_has_a_teacher},
    {"/training/sgd_momentum", momentum_is_of_sgd},
    {"/training/ranks", ranks_share_the_groups},
    {"/eval/max_rows", held_out_rows_are_said_once},
    {"/eval/sample_prompts", sampling_belongs_to_an_evaluation},
    {"/eval/every_steps", interval_is_of_a_command},
    {"/output", output_is_not_the_model},
    {"/output", other_tokens_are_of_texts_and_topk_rows},
    {"/output", samples_have_their_fields},
    {"/output", rollouts_are_of_a_graded_adapter},
    {"/output", generating_has_its_own_defaults},
    {"/metrics/otlp_url", generating_tells_no_figures},
    {"/placement/ranks_per_node", placed_ranks_share_the_groups},
};

}  // namespace

bool SpecReading::given(std::string_view pointer) const {
    const boost::json::object* object = &document;
    std::size_t start = 1;
    while (true) {
        const auto end = pointer.find('/', start);
        const auto* value = object->if_contains(pointer.substr(start, end - start));
        if (value == nullptr || end == std::string_view::npos) {
            return value != nullptr;
        }
        object = value->if_object();
        if (object == nullptr) {
            return false;
        }
        start = end + 1;
    }
}

void SpecReading::violate(std::string_view pointer, std::string code, std::string detail) {
    violations.push_back(Violation{std::string(pointer), std::move(code), std::move(detail)});
}

void SpecReading::require(std::string_view pointer, std::string_view what) {
    const auto name = pointer.substr(pointer.rfind('/') + 1);
    violate(pointer, "required", std::string(name) + " is required: " + std::string(what));
}

std::span<const SpecRule> spec_rules() {
    return kRules;
}

void write_dependent_defaults(const JobSpec& spec, boost::json::object& document) {
    if (spec.has_teacher()) {
        return;
    }
    if (auto* training = document.if_contains("training")) {
        training->as_object()["kd_ratio"] = 0.0;
    }
}

}  // namespace distilld::api
