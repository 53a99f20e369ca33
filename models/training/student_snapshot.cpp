#include "models/training/student_snapshot.hpp"

#include <torch/utils.h>
#include <boost/json.hpp>
#include <set>

#include "base/files/open_file.hpp"
#include "base/join.hpp"
#include "base/json_text.hpp"
#include "base/sha256.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";

class HostSnapshot final : public StudentSnapshot {
  public:
    explicit HostSnapshot(SnapshotContent content) : content_(std::move(content)) {}

    Result<void> write_checkpoint(const fs::path& folder) const override {
        if (Result<void> made = make_new_folder(folder); !made) {
            return made;
        }
        CheckpointManifest manifest{content_.run, content_.adam_steps, content_.canonical_config, {}};
        for (const auto& [name, tensors] :
             {std::pair{kWeightsFile, &content_.weights}, std::pair{kOptimizerFile, &content_.optimizer}}) {
            if (const Result<void> written = write_safetensors(folder / name, *tensors, {{"format", "pt"}}); !written) {
                return written.error();
            }
            const Result<std::string> hash = sha256_file(folder / name);
            if (!hash) {
                return hash.error();
            }
            manifest.files.emplace(name, *hash);
        }
        return write_checkpoint_manifest(folder, manifest);
    }

    Result<std::vector<fs::path>> write_model(const fs::path& folder) const override {
        return content_.write_model(folder);
    }

  private:
    SnapshotContent content_;
};

/// The fields in which two canonical configs differ; empty if they agree.
std::string difference(const std::string& checkpoint, const std::string& network) {
    if (checkpoint == network) {
        return {};
    }
    boost::system::error_code bad;
    const json::value theirs = json::parse(checkpoint, bad);
    if (bad || !theirs.is_object()) {
        return "its config is not a JSON object";
    }
    const json::value ours = json::parse(network);
    std::string text;
    const auto add = [&](std::string_view name, const json::value* their, const json::value* our) {
        text += (text.empty() ? "" : "; ") + std::string(name) + " is " +
                (their == nullptr ? "absent" : to_text(*their)) + ", the student's is " +
                (our == nullptr ? "absent" : to_text(*our));
    };
    for (const auto& [name, value] : ours.get_object()) {
        const json::value* other = theirs.get_object().if_contains(name);
        if (other == nullptr || *other != value) {
            add(name, other, &value);
        }
    }
    for (const auto& [name, value] : theirs.get_object()) {
        if (!ours.get_object().contains(name)) {
            add(name, &value, nullptr);
        }
    }
    return text;
}

/// Checks that the file has exactly the names, shapes and dtypes of `wanted`.
Result<void> check_tensors(const SafetensorsFile& file, const NamedTensors& wanted) {
    const std::string where = file.path().string();
    std::set<std::string> expected;
    for (const auto& [name, tensor] : wanted) {
        expected.insert(name);
        const SafetensorsFile::Entry* entry = file.find(name);
        if (entry == nullptr) {
            return invalid_input(where + ": tensor " + name + " is missing");
        }
        if (entry->dtype != tensor.scalar_type() || entry->shape != tensor.sizes()) {
            return invalid_input(where + ": tensor " + name + " is not " + c10::toString(tensor.scalar_type()) + " " +
                                 shape_text(tensor.sizes()) + ", its shape is " + shape_text(entry->shape));
        }
    }
    for (const std::string& name : file.names()) {
        if (!expected.contains(name)) {
            return invalid_input(where + ": tensor " + name + " does not belong to the student");
        }
    }
    return {};
}

Result<void> copy_tensors(const SafetensorsFile& file, const NamedTensors& into) {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, tensor] : into) {
        const Result<torch::Tensor> stored = file.tensor(name);
        if (!stored) {
            return stored.error();
        }
        torch::Tensor target = tensor;
        target.copy_(*stored);
    }
    return {};
}

}  // namespace

torch::Tensor host_copy(const torch::Tensor& tensor) {
    return tensor.detach().to(torch::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

NamedTensors trained_masters(const std::vector<Parameter>& parameters) {
    NamedTensors tensors;
    tensors.reserve(parameters.size());
    for (const Parameter& parameter : parameters) {
        if (parameter.trainable) {
            tensors.push_back({parameter.name, parameter.master.detach()});
        }
    }
    return tensors;
}

std::shared_ptr<const StudentSnapshot> make_student_snapshot(SnapshotContent content) {
    return std::make_shared<const HostSnapshot>(std::move(content));
}

Result<CheckpointManifest> load_student_checkpoint(const fs::path& folder, const std::string& canonical_config,
                                                   const NamedTensors& weights, const NamedTensors& optimizer) {
    Result<CheckpointManifest> manifest = read_checkpoint_manifest(folder);
    if (!manifest) {
        return manifest;
    }
    const std::string mismatch = difference(manifest->config_json, canonical_config);
    if (!mismatch.empty()) {
        return invalid_input("checkpoint " + folder.string() + " is of another network: " + mismatch);
    }
    for (const char* name : {kWeightsFile, kOptimizerFile}) {
        if (!manifest->files.contains(name)) {
            return io_error((folder / kManifestFile).string() + ": files does not name " + name);
        }
    }
    if (const Result<void> whole = verify_checkpoint_files(folder, *manifest); !whole) {
        return whole.error();
    }
    const Result<SafetensorsFile> weights_file = SafetensorsFile::open(folder / kWeightsFile);
    if (!weights_file) {
        return weights_file.error();
    }
    const Result<SafetensorsFile> optimizer_file = SafetensorsFile::open(folder / kOptimizerFile);
    if (!optimizer_file) {
        return optimizer_file.error();
    }
    Result<void> done = check_tensors(*weights_file, weights);
    if (done) {
        done = check_tensors(*optimizer_file, optimizer);
    }
    if (done) {
        done = copy_tensors(*weights_file, weights);
    }
    if (done) {
        done = copy_tensors(*optimizer_file, optimizer);
    }
    if (!done) {
        return done.error();
    }
    return manifest;
}

}  // namespace distilld::models
