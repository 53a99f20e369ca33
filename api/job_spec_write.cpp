#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "api/job_spec_json.hpp"
#include "api/spec_names.hpp"
#include "base/json_text.hpp"

namespace distilld::api {

namespace json = boost::json;

json::object to_json_object(const JobSpec& spec) {
    json::object student;
    if (!spec.student.model.empty()) {
        student["model"] = spec.student.model;
    }
    student["init"] = to_string(spec.student.init);
    if (spec.student.config_json) {
        auto config = parse_json_text(*spec.student.config_json, kSpecDepthLimit);
        if (!config) {
            throw ErrorException(invalid_input("/student/config: not JSON: " + config.error().reason));
        }
        student["config"] = *std::move(config);
    }
    student["dtype"] = to_string(spec.student.dtype);

    json::object root;
    root["name"] = spec.name;
    root["student"] = std::move(student);
    if (spec.teacher) {
        const auto& teacher = *spec.teacher;
        json::object object;
        object["endpoints"] = json::array(teacher.endpoints.begin(), teacher.endpoints.end());
        object["protocol"] = distilld::to_string(teacher.protocol);
        object["model"] = teacher.model;
        if (teacher.max_concurrent.automatic) {
            object["max_concurrent"] = "auto";
        } else {
            object["max_concurrent"] = teacher.max_concurrent.limit;
        }
        object["window"] = teacher.window;
        object["window_bytes"] = teacher.window_bytes;
        object["timeout_secs"] = teacher.timeout_secs;
        object["startup_timeout_secs"] = teacher.startup_timeout_secs;
        object["top_k"] = teacher.top_k;
        if (!teacher.api_key_env.empty()) {
            object["api_key_env"] = teacher.api_key_env;
        }
        if (!teacher.ca_file.empty()) {
            object["ca_file"] = teacher.ca_file;
        }
        object["max_retries"] = teacher.max_retries;
        object["hedge"] = teacher.hedge;
        root["teacher"] = std::move(object);
    }

    json::object dataset;
    dataset["train"] = spec.dataset.train;
    if (!spec.dataset.eval.empty()) {
        dataset["eval"] = spec.dataset.eval;
    }
    dataset["sequence_length"] = spec.dataset.sequence_length;
    dataset["packing"] = spec.dataset.packing;
    root["dataset"] = std::move(dataset);

    const auto& training = spec.training;
    json::object object;
    object["parallel"] = training.parallel;
    object["overlap_optimizer"] = training.overlap_optimizer;
    if (training.batch_size_auto) {
        object["batch_size"] = "auto";
    } else {
        object["batch_size"] = training.batch_size;
    }
    object["micro_batches"] = training.micro_batches;
    if (training.max_steps) {
        object["max_steps"] = *training.max_steps;
    }
    if (training.epochs) {
        object["epochs"] = *training.epochs;
    }
    object["learning_rate"] = training.learning_rate;
    object["lr_scheduler_type"] = to_string(training.lr_scheduler_type);
    object["warmup_steps"] = training.warmup_steps;
    object["weight_decay"] = training.weight_decay;
    object["max_grad_norm"] = training.max_grad_norm;
    object["adam_beta1"] = training.adam_beta1;
    object["adam_beta2"] = training.adam_beta2;
    object["adam_epsilon"] = training.adam_epsilon;
    object["temperature"] = training.temperature;
    object["kd_ratio"] = spec.teacher ? training.kd_ratio : 0.0;
    object["beta"] = training.beta;
    object["seed"] = training.seed;
    object["threads"] = training.threads;
    object["logging_steps"] = training.logging_steps;
    object["eval_steps"] = training.eval_steps;
    root["training"] = std::move(object);

    object = json::object{{"every_steps", spec.checkpoint.every_steps}, {"keep", spec.checkpoint.keep}};
    if (!spec.checkpoint.dir.empty()) {
        object["dir"] = spec.checkpoint.dir;
    }
    root["checkpoint"] = std::move(object);
    root["output"] = spec.output;
    return root;
}

std::string to_json(const JobSpec& spec) {
    return json::serialize(to_json_object(spec));
}

const char* to_string(Dtype value) noexcept {
    return name_of(kDtypes, value);
}
const char* to_string(StudentInit value) noexcept {
    return name_of(kInits, value);
}
const char* to_string(LrScheduler value) noexcept {
    return name_of(kSchedulers, value);
}

}  // namespace distilld::api
