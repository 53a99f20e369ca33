#include "server/worker/resume_identity.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "api/job_spec_json.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

// Fields on which weights depend. total steps are left out: a run may be prolonged.
constexpr const char* kDeciding[] = {
    "/student/dtype",          "/dataset/sequence_length", "/dataset/packing",       "/training/batch_size",
    "/training/micro_batches", "/training/learning_rate",  "/training/warmup_steps", "/training/lr_scheduler_type",
    "/training/weight_decay",  "/training/max_grad_norm",  "/training/adam_beta1",   "/training/adam_beta2",
    "/training/adam_epsilon",  "/training/temperature",    "/training/kd_ratio",     "/training/seed",
    "/teacher/protocol",       "/teacher/top_k",
};

std::string text_at(const json::value& document, const char* pointer) {
    boost::system::error_code missing;
    const json::value* found = document.find_pointer(pointer, missing);
    return found == nullptr ? "nothing" : json::serialize(*found);
}

}  // namespace

std::string make_run_identity(const JobSpec& spec, const std::string& dataset_hash) {
    json::object identity;
    identity["spec"] = api::to_json_object(spec);
    identity["dataset_sha256"] = dataset_hash;
    return json::serialize(identity);
}

Result<void> check_run_identity(const std::string& identity, const JobSpec& spec, const std::string& dataset_hash) {
    boost::system::error_code bad;
    const json::value then = json::parse(identity, bad);
    if (bad || !then.is_object() || !then.as_object().contains("spec")) {
        return invalid_input("the checkpoint does not say with which spec it was made");
    }
    const std::string hash_then = text_at(then, "/dataset_sha256");
    if (hash_then != "\"" + dataset_hash + "\"") {
        return invalid_input(
            "/dataset/train: not the dataset that the checkpoint was trained on (SHA-256 of its rows " + dataset_hash +
            ", in the checkpoint " + hash_then + ")");
    }
    const json::value now = api::to_json_object(spec);
    const json::value& spec_then = then.as_object().at("spec");
    for (const char* pointer : kDeciding) {
        const std::string was = text_at(spec_then, pointer);
        const std::string is = text_at(now, pointer);
        if (was != is) {
            return invalid_input(std::string(pointer) + ": is " + is + ", but the checkpoint was made with " + was +
                                 "; weights depend on it, so the run cannot be resumed");
        }
    }
    return {};
}

std::optional<std::string> threads_warning(const std::string& identity, const JobSpec& spec) {
    boost::system::error_code bad;
    const json::value then = json::parse(identity, bad);
    if (bad) {
        return std::nullopt;
    }
    const std::string was = text_at(then, "/spec/training/threads");
    const std::string is = std::to_string(spec.training.threads);
    if (was == is) {
        return std::nullopt;
    }
    return "/training/threads: is " + is + ", but the checkpoint was made with " + was +
           ": weights will not be those of an uninterrupted run bit for bit";
}

void adopt_batch_size(const std::string& identity, JobSpec& spec) {
    if (!spec.training.batch_size_auto) {
        return;
    }
    boost::system::error_code bad;
    const json::value then = json::parse(identity, bad);
    if (bad) {
        return;
    }
    boost::system::error_code missing;
    const json::value* size = then.find_pointer("/spec/training/batch_size", missing);
    if (size == nullptr || !size->is_number()) {
        return;
    }
    boost::system::error_code inexact;
    const auto number = size->to_number<std::uint32_t>(inexact);
    if (inexact || number == 0) {
        return;
    }
    spec.training.batch_size = number;
    spec.training.batch_size_auto = false;
}

}  // namespace distilld
