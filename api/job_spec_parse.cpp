#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"
#include "api/object_reader.hpp"
#include "api/spec_names.hpp"
#include "api/spec_paths.hpp"
#include "api/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kPathLimit = 4096;
constexpr std::size_t kNameLimit = 128;
constexpr std::size_t kEndpointLimit = 256;
constexpr std::uint32_t kConcurrencyLimit = 1024;
constexpr std::uint64_t kStepLimit = 1'000'000'000'000;

/// Every field, for suggestions when somebody writes one into the wrong object.
constexpr std::array<FieldPlace, 52> kFields{{
    {"", "name"},
    {"", "student"},
    {"", "teacher"},
    {"", "dataset"},
    {"", "training"},
    {"", "checkpoint"},
    {"", "output"},
    {"student", "model"},
    {"student", "init"},
    {"student", "config"},
    {"student", "dtype"},
    {"teacher", "endpoints"},
    {"teacher", "protocol"},
    {"teacher", "model"},
    {"teacher", "max_concurrent"},
    {"teacher", "window"},
    {"teacher", "window_bytes"},
    {"teacher", "timeout_secs"},
    {"teacher", "startup_timeout_secs"},
    {"teacher", "top_k"},
    {"teacher", "api_key_env"},
    {"teacher", "ca_file"},
    {"teacher", "max_retries"},
    {"teacher", "hedge"},
    {"dataset", "train"},
    {"dataset", "eval"},
    {"dataset", "sequence_length"},
    {"dataset", "packing"},
    {"training", "parallel"},
    {"training", "overlap_optimizer"},
    {"training", "batch_size"},
    {"training", "micro_batches"},
    {"training", "max_steps"},
    {"training", "epochs"},
    {"training", "learning_rate"},
    {"training", "lr_scheduler_type"},
    {"training", "warmup_steps"},
    {"training", "weight_decay"},
    {"training", "max_grad_norm"},
    {"training", "adam_beta1"},
    {"training", "adam_beta2"},
    {"training", "adam_epsilon"},
    {"training", "temperature"},
    {"training", "kd_ratio"},
    {"training", "beta"},
    {"training", "seed"},
    {"training", "threads"},
    {"training", "logging_steps"},
    {"training", "eval_steps"},
    {"checkpoint", "every_steps"},
    {"checkpoint", "keep"},
    {"checkpoint", "dir"},
}};

void read_name(ObjectReader& root, JobSpec& spec) {
    spec.name = "job";
    std::string name;
    if (!root.text("name", name, kNameLimit, false)) {
        return;
    }
    const auto allowed = [](char c) {
        return is_letter(c) || is_digit(c) || c == ' ' || c == '.' || c == '_' || c == '-' || c == ':';
    };
    if (!std::all_of(name.begin(), name.end(), allowed) || !(is_letter(name.front()) || is_digit(name.front()))) {
        root.violate("name", "invalid_value",
                     "must begin with a letter or digit and consist of letters, digits, spaces and . _ - :");
        return;
    }
    spec.name = std::move(name);
}

void read_student(ObjectReader& root, JobSpec& spec, std::vector<Violation>& out) {
    const auto* object = root.required_object("student", "an object with model (a Hugging Face folder)");
    if (object == nullptr) {
        return;
    }
    ObjectReader reader(*object, "/student", out);
    auto& student = spec.student;
    const bool has_model = reader.find("model") != nullptr;
    reader.text("model", student.model, kPathLimit, false);
    reader.one_of("init", kInits, student.init);
    const bool has_config = reader.find("config") != nullptr;
    if (const auto* config = reader.object("config")) {
        student.config_json = json::serialize(*config);
    }
    reader.one_of("dtype", kDtypes, student.dtype);
    if (!has_model && student.init == StudentInit::pretrained) {
        reader.required("model", "the Hugging Face folder of the student");
    } else if (!has_model && !has_config) {
        reader.required("model", "init \"random\" needs a model folder or a config");
    }
    reader.finish(kFields);
}

void check_endpoint(ObjectReader& reader, std::size_t index, const json::value& value, std::set<std::string>& seen,
                    TeacherSpec& teacher, std::vector<Violation>& out) {
    const auto pointer = reader.at("endpoints") + "/" + std::to_string(index);
    const auto violate = [&](std::string code, std::string detail) {
        out.push_back(Violation{pointer, std::move(code), std::move(detail)});
    };
    if (!value.is_string()) {
        violate("wrong_type", "a string (a URL) is expected, not " + kind_name(value));
        return;
    }
    const std::string text(value.get_string());
    const auto url = boost::urls::parse_uri(text);
    if (!url || text.size() > kPathLimit) {
        violate("invalid_value", quote(text) + " is not a URL such as http://host:8000");
        return;
    }
    if (url->scheme() != "http" && url->scheme() != "https") {
        violate("invalid_value", quote(text) + " is neither http nor https");
    } else if (url->encoded_host().empty()) {
        violate("invalid_value", quote(text) + " has no host");
    } else if (url->has_port() && (url->port_number() == 0 || url->port().empty())) {
        violate("invalid_value", quote(text) + " has a port that is not 1 to 65535");
    } else if (url->has_userinfo()) {
        violate("invalid_value", "must not carry a user name or password: name a variable in api_key_env");
    } else if (url->has_fragment()) {
        violate("invalid_value", quote(text) + " has a fragment (#…), which is never sent");
    } else if (!seen.insert(text).second) {
        violate("conflict", quote(text) + " is listed twice");
    } else {
        teacher.endpoints.push_back(text);
    }
}

void read_endpoints(ObjectReader& reader, TeacherSpec& teacher, std::vector<Violation>& out) {
    const auto* value = reader.find("endpoints");
    if (value == nullptr) {
        reader.required("endpoints", "a list of http or https URLs");
        return;
    }
    if (!value->is_array()) {
        reader.wrong_type("endpoints", "an array of URLs", *value);
        return;
    }
    const auto& array = value->get_array();
    if (array.empty()) {
        reader.violate("endpoints", "invalid_value", "must not be empty");
        return;
    }
    if (array.size() > kEndpointLimit) {
        reader.violate("endpoints", "out_of_range", "lists more than " + std::to_string(kEndpointLimit) + " endpoints");
        return;
    }
    std::set<std::string> seen;
    for (std::size_t i = 0; i < array.size(); ++i) {
        check_endpoint(reader, i, array[i], seen, teacher, out);
    }
}

void read_teacher(ObjectReader& root, JobSpec& spec, std::vector<Violation>& out) {
    const auto* object = root.object("teacher");
    if (object == nullptr) {
        return;
    }
    ObjectReader reader(*object, "/teacher", out);
    TeacherSpec teacher;
    read_endpoints(reader, teacher, out);
    reader.one_of("protocol", kProtocols, teacher.protocol);
    reader.text("model", teacher.model, 256, false);
    auto& concurrency = teacher.max_concurrent;
    reader.integer_or_auto("max_concurrent", concurrency.automatic, concurrency.limit, 1, kConcurrencyLimit);
    if (concurrency.automatic) {
        concurrency.limit = kConcurrencyLimit;
    }
    reader.integer("window", teacher.window, 0, 1U << 20);
    reader.integer("window_bytes", teacher.window_bytes, 1, 1ULL << 50);
    reader.number("timeout_secs", teacher.timeout_secs, 0, 86400, Ends::open_low);
    reader.number("startup_timeout_secs", teacher.startup_timeout_secs, 0, 86400);
    reader.integer("top_k", teacher.top_k, 0, 65536);
    if (reader.text("api_key_env", teacher.api_key_env, 256, true) && !teacher.api_key_env.empty()) {
        const auto& name = teacher.api_key_env;
        const bool good = !is_digit(name.front()) && std::all_of(name.begin(), name.end(), [](char c) {
            return is_letter(c) || is_digit(c) || c == '_';
        });
        // The value is not echoed: people paste the key itself here.
        if (!good) {
            reader.violate("api_key_env", "invalid_value", "is not the name of an environment variable");
        }
    }
    reader.text("ca_file", teacher.ca_file, kPathLimit, true);
    reader.integer("max_retries", teacher.max_retries, 0, 1000);
    reader.boolean("hedge", teacher.hedge);
    reader.finish(kFields);
    spec.teacher = std::move(teacher);
}

void read_dataset(ObjectReader& root, JobSpec& spec, std::vector<Violation>& out) {
    const auto* object = root.required_object("dataset", "an object with train (a JSONL file) and sequence_length");
    if (object == nullptr) {
        return;
    }
    ObjectReader reader(*object, "/dataset", out);
    auto& dataset = spec.dataset;
    if (reader.find("train") == nullptr) {
        reader.required("train", "the JSONL file to train on");
    }
    reader.text("train", dataset.train, kPathLimit, false);
    reader.text("eval", dataset.eval, kPathLimit, true);
    if (reader.find("sequence_length") == nullptr) {
        reader.required("sequence_length", "input positions of a row, at least 1");
    }
    reader.integer("sequence_length", dataset.sequence_length, 1, 1U << 20);
    reader.boolean("packing", dataset.packing);
    reader.finish(kFields);
}

void read_length(ObjectReader& reader, TrainingSpec& training) {
    const bool has_steps = reader.find("max_steps") != nullptr;
    const bool has_epochs = reader.find("epochs") != nullptr;
    std::uint64_t steps = 0;
    if (reader.integer("max_steps", steps, 1, kStepLimit)) {
        training.max_steps = steps;
    }
    double epochs = 0;
    if (reader.number("epochs", epochs, 0, 1e6, Ends::open_low)) {
        training.epochs = epochs;
    }
    if (has_steps && has_epochs) {
        reader.violate("epochs", "conflict", "give max_steps or epochs, not both");
    } else if (!has_steps && !has_epochs) {
        reader.required("max_steps", "give max_steps or epochs");
    }
}

void read_training(ObjectReader& root, JobSpec& spec, bool has_teacher, std::vector<Violation>& out) {
    const auto* object = root.required_object("training", "an object with at least max_steps or epochs");
    if (object == nullptr) {
        return;
    }
    ObjectReader reader(*object, "/training", out);
    auto& training = spec.training;
    reader.boolean("parallel", training.parallel);
    reader.boolean("overlap_optimizer", training.overlap_optimizer);
    reader.integer_or_auto("batch_size", training.batch_size_auto, training.batch_size, 1, 65536);
    reader.integer("micro_batches", training.micro_batches, 1, 65536);
    read_length(reader, training);
    reader.number("learning_rate", training.learning_rate, 0, 100);
    reader.one_of("lr_scheduler_type", kSchedulers, training.lr_scheduler_type);
    reader.integer("warmup_steps", training.warmup_steps, 0, kStepLimit);
    reader.number("weight_decay", training.weight_decay, 0, 100);
    reader.number("max_grad_norm", training.max_grad_norm, 0, 1e9);
    reader.number("adam_beta1", training.adam_beta1, 0, 1, Ends::open_high);
    reader.number("adam_beta2", training.adam_beta2, 0, 1, Ends::open_high);
    reader.number("adam_epsilon", training.adam_epsilon, 0, 1, Ends::open_low);
    reader.number("temperature", training.temperature, 0, 1000, Ends::open_low);
    training.kd_ratio = has_teacher ? 1.0 : 0.0;
    if (reader.number("kd_ratio", training.kd_ratio, 0, 1) && training.kd_ratio > 0 && !has_teacher) {
        reader.violate("kd_ratio", "conflict", "is above 0, but the spec has no teacher");
    }
    if (reader.number("beta", training.beta, 0, 1) && training.beta != 0) {
        reader.violate("beta", "unsupported", "only 0 (forward KL) is supported");
    }
    reader.integer("seed", training.seed, 0, std::numeric_limits<std::uint64_t>::max());
    reader.integer("threads", training.threads, 0, 4096);
    reader.integer("logging_steps", training.logging_steps, 1, kStepLimit);
    reader.integer("eval_steps", training.eval_steps, 0, kStepLimit);
    reader.finish(kFields);
}

void read_checkpoint(ObjectReader& root, JobSpec& spec, std::vector<Violation>& out) {
    const auto* object = root.object("checkpoint");
    if (object == nullptr) {
        return;
    }
    ObjectReader reader(*object, "/checkpoint", out);
    reader.integer("every_steps", spec.checkpoint.every_steps, 0, kStepLimit);
    reader.integer("keep", spec.checkpoint.keep, 1, 1000);
    reader.text("dir", spec.checkpoint.dir, kPathLimit, true);
    reader.finish(kFields);
}

void read_output(ObjectReader& root, JobSpec& spec) {
    if (root.find("output") == nullptr) {
        root.required("output", "the folder that takes the trained student");
    }
    if (!root.text("output", spec.output, kPathLimit, false)) {
        return;
    }
    if (!spec.student.model.empty() && normal_path(spec.output) == normal_path(spec.student.model)) {
        root.violate("output", "conflict", "is the folder of student.model, which would be overwritten");
    }
}

}  // namespace

std::string describe(const SpecViolations& violations) {
    std::string text;
    for (const auto& violation : violations.violations) {
        if (!text.empty()) {
            text += '\n';
        }
        text += (violation.pointer.empty() ? "(document)" : violation.pointer) + ": " + violation.detail;
    }
    return text;
}

void throw_exception_from_error(const SpecViolations& violations, const boost::source_location&) {
    throw ErrorException(invalid_input("the job spec is not valid:\n" + describe(violations)));
}

ParsedSpec parse_job_spec(std::string_view text) {
    SpecViolations result;
    auto& out = result.violations;
    if (text.size() > kSpecSizeLimit) {
        out.push_back({"", "too_large", "the spec is longer than " + std::to_string(kSpecSizeLimit) + " bytes"});
        return result;
    }
    const auto document = parse_json_text(text, kSpecDepthLimit);
    if (!document) {
        out.push_back({"", "malformed_json", "not JSON: " + document.error().reason});
        return result;
    }
    if (!document->is_object()) {
        out.push_back({"", "wrong_type", "an object is expected, not " + kind_name(*document)});
        return result;
    }
    for (auto& pointer : duplicate_keys(text, kSpecDepthLimit)) {
        out.push_back({std::move(pointer), "duplicate_key", "stands more than once in its object"});
    }
    JobSpec spec;
    ObjectReader root(document->get_object(), "", out);
    read_name(root, spec);
    read_student(root, spec, out);
    read_teacher(root, spec, out);
    read_dataset(root, spec, out);
    read_training(root, spec, document->get_object().contains("teacher"), out);
    read_checkpoint(root, spec, out);
    read_output(root, spec);
    root.finish(kFields);
    if (!out.empty()) {
        return result;
    }
    return spec;
}

}  // namespace distilld::api
