#include "server/worker/export_owner.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <optional>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/json_text.hpp"
#include "server/worker/resume_identity.hpp"

namespace distilld {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr std::uint64_t kMaxOwnerBytes = 4U << 20;
constexpr std::size_t kMaxDepth = 4;
constexpr std::int64_t kFormatVersion = 1;

/// The first file of a model, sorted by name; absent: there is none.
Result<std::optional<fs::path>> model_file(const fs::path& output) {
    std::optional<fs::path> found;
    const Result<std::vector<std::string>> names = names_in(output);
    if (!names) {
        return names.error();
    }
    for (const std::string& name : *names) {
        const fs::path path = output / name;
        const bool of_a_model = path.filename() == "config.json" || path.extension() == ".safetensors";
        // A name with a leading dot is a file that was never completed.
        if (of_a_model && !name.starts_with('.') && (!found || path < *found)) {
            found = path;
        }
    }
    return found;
}

/// The run's identity in distilld.json.
std::optional<std::string> owner(const fs::path& output) {
    const Result<std::string> text = read_text_file(output / kExportOwnerFile, kMaxOwnerBytes);
    if (!text) {
        return std::nullopt;
    }
    const auto document = parse_json_text(*text, kMaxDepth);
    const auto* object = document ? document->if_object() : nullptr;
    const auto* run = object != nullptr ? object->if_contains("run") : nullptr;
    if (run == nullptr || !run->is_string()) {
        return std::nullopt;
    }
    return std::string(run->get_string());
}

}  // namespace

Result<void> check_output(const fs::path& output, const JobSpec& spec, const std::optional<std::string>& dataset_hash) {
    const Result<std::optional<fs::path>> file = model_file(output);
    if (!file) {
        return file.error();
    }
    if (!*file || spec.overwrite) {
        return {};
    }
    const std::string in_the_way = "/output: " + (*file)->string() + " belongs to another model";
    const std::string way_out = ". Nothing was changed: name another folder, or set \"overwrite\": true to replace it";
    const std::optional<std::string> identity = owner(output);
    if (!identity) {
        return invalid_input(in_the_way + " (no " + kExportOwnerFile + " says that distilld made it)" + way_out);
    }
    JobSpec adopted = spec;
    adopt_decisions(*identity, adopted);
    const std::string hash = dataset_hash ? *dataset_hash : dataset_of(*identity);
    if (const Result<void> same = check_run_identity(*identity, adopted, hash); !same) {
        return invalid_input(in_the_way + ": " + same.error().message + way_out);
    }
    return {};
}

Result<void> write_export_owner(const fs::path& output, const ExportRecord& record) {
    if (Result<void> made = make_folders(output); !made) {
        return made;
    }
    const json::object document{{"format_version", kFormatVersion},
                                {"step", record.step},
                                {"weights_sha256", record.weights_sha256},
                                {"files", json::array(record.files.begin(), record.files.end())},
                                {"run", record.identity}};
    return write_file_atomically(output / kExportOwnerFile, to_text(document) + "\n");
}

}  // namespace distilld
