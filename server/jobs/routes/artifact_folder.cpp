#include "server/jobs/routes/artifact_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cerrno>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/job_spec_json.hpp"
#include "base/files/read_at.hpp"
#include "base/json_text.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/sealed_shards.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxOwnerBytes = 4U << 20;
constexpr std::size_t kMaxOwnerDepth = 4;
constexpr const char* kOwnerFile = "distilld.json";

// Files that an export may have written before distilld.json named them (version 0.1): in the folder itself, where a
// merged model stands beside its adapter, and packed weights beside their originals.
constexpr std::array<std::string_view, 14> kUnnamedFiles{"config.json",
                                                         "generation_config.json",
                                                         "adapter_config.json",
                                                         "model.safetensors",
                                                         "tokenizer.json",
                                                         "tokenizer_config.json",
                                                         "vocab.json",
                                                         "merges.txt",
                                                         "tokenizer.model",
                                                         "special_tokens_map.json",
                                                         "chat_template.jinja",
                                                         "added_tokens.json",
                                                         "adapter_model.safetensors",
                                                         kOwnerFile};
constexpr std::array<std::string_view, 3> kUnnamedFolders{"", "merged/", "ternary/"};

// In the store of a generate job, beside its shards (docs/store.md).
constexpr std::array<std::string_view, 5> kStoreFiles{"manifest.json", "shards.jsonl", "lock", "leases.json",
                                                      "leases.lock"};
// server/sinks/mlflow_sink.hpp
constexpr std::string_view kMlflowFile = "mlflow_run.json";
// server/sinks/tensorboard_sink.cpp
constexpr std::string_view kEventFiles = "events.out.tfevents.";

Error cannot_read(const fs::path& path, const std::error_code& why) {
    return io_error("cannot read " + path.string() + ": " + why.message());
}

bool is_absent(const std::error_code& why) {
    return why == std::errc::no_such_file_or_directory || why == std::errc::not_a_directory ||
           why == std::errc::filename_too_long || why == std::errc::too_many_symbolic_link_levels ||
           why == std::errc::no_such_device_or_address;
}

/// Whether the name stays below a folder, judged by its parts alone, and no part is hidden.
bool is_plain(const std::string& name) {
    const fs::path relative(name);
    return !name.empty() && name.find('\0') == std::string::npos && relative.is_relative() &&
           std::ranges::none_of(relative,
                                [](const fs::path& part) { return part.empty() || part.native().starts_with('.'); });
}

/// Opens a plain name without following any link on its way; none: errno says why.
Descriptor open_beneath(const Descriptor& folder, const std::string& name, int flags) {
    Descriptor at;
    const fs::path relative(name);
    for (const fs::path& part : relative.parent_path()) {
        at = Descriptor(
            ::openat(at ? at.get() : folder.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!at) {
            return at;
        }
    }
    return Descriptor(
        ::openat(at ? at.get() : folder.get(), relative.filename().c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
}

Result<std::optional<ArtifactFile>> open_plain(const ArtifactFolder& folder, const std::string& name) {
    // Non-blocking: a pipe would wait for its other end, and the type is known only after opening.
    Descriptor opened = open_beneath(*folder.open, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!opened) {
        const std::error_code why(errno, std::system_category());
        if (is_absent(why)) {
            return std::optional<ArtifactFile>();
        }
        return cannot_read(folder.root / name, why);
    }
    struct stat status{};
    if (::fstat(opened.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return std::optional<ArtifactFile>();
    }
    return std::optional(ArtifactFile(std::move(opened), (folder.root / name).string(),
                                      static_cast<std::uint64_t>(status.st_size), status.st_mtime));
}

/// The worker's description of the model; an empty object if it is not there or cannot be read.
boost::json::object owner_document(const ArtifactFolder& folder) {
    auto file = open_plain(folder, kOwnerFile);
    if (!file || !*file || (*file)->size > kMaxOwnerBytes) {
        return {};
    }
    const auto document = parse_json_text((*file)->read((*file)->size), kMaxOwnerDepth);
    const auto* object = document ? document->if_object() : nullptr;
    return object != nullptr ? *object : boost::json::object();
}

std::string sha256_in(const boost::json::object& owner) {
    const auto* hash = owner.if_contains("weights_sha256");
    return hash != nullptr && hash->is_string() ? std::string(hash->get_string()) : std::string();
}

void add_export(const boost::json::object& owner, std::set<std::string>& names) {
    const auto* files = owner.if_contains("files");
    if (files == nullptr || !files->is_array()) {
        for (const std::string_view below : kUnnamedFolders) {
            for (const std::string_view name : kUnnamedFiles) {
                names.insert(std::string(below) + std::string(name));
            }
        }
        return;
    }
    for (const auto& name : files->get_array()) {
        if (name.is_string()) {
            names.emplace(name.get_string());
        }
    }
}

Result<void> add_store(const fs::path& root, std::set<std::string>& names) {
    names.insert(kStoreFiles.begin(), kStoreFiles.end());
    const auto manifest = read_manifest(root);
    if (!manifest) {
        return manifest.error();
    }
    std::uint64_t offset = 0;
    const auto shards = read_shard_list(root, *manifest, offset);
    if (!shards) {
        return shards.error();
    }
    for (const StoreShard& shard : *shards) {
        names.insert(shard.file);
    }
    return {};
}

/// Files of the job's sinks in the folder.
void add_sinks(const ArtifactFolder& folder, const MetricsSpec& metrics, std::set<std::string>& names) {
    if (!metrics.mlflow_url.empty()) {
        names.emplace(kMlflowFile);
    }
    std::error_code failed;
    const auto below = [&](const std::string& path) {
        return fs::weakly_canonical(path, failed).lexically_relative(folder.root).string();
    };
    if (!metrics.jsonl_file.empty()) {
        names.insert(below(metrics.jsonl_file));
    }
    if (metrics.tensorboard_dir.empty()) {
        return;
    }
    const std::string events = below(metrics.tensorboard_dir);
    if (events != "." && !is_plain(events)) {
        return;
    }
    for (fs::directory_iterator entry(metrics.tensorboard_dir, failed), end; !failed && entry != end;
         entry.increment(failed)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with(kEventFiles)) {
            names.insert(events == "." ? name : events + "/" + name);
        }
    }
}

}  // namespace

Result<std::optional<ArtifactFolder>> artifact_folder_of(const api::Job& job) {
    ArtifactFolder folder;
    folder.open = std::make_shared<const Descriptor>(::open(job.output.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!*folder.open) {
        const std::error_code why(errno, std::system_category());
        if (is_absent(why)) {
            return std::optional<ArtifactFolder>();
        }
        return cannot_read(job.output, why);
    }
    std::error_code failed;
    folder.root = fs::read_symlink("/proc/self/fd/" + std::to_string(folder.open->get()), failed);
    if (failed) {
        return cannot_read(job.output, failed);
    }
    std::set<std::string> names;
    if (job.kind == JobKind::generate) {
        if (auto manifest = open_plain(folder, "manifest.json"); !manifest || !*manifest) {
            return manifest ? Result<std::optional<ArtifactFolder>>(std::nullopt) : manifest.error();
        }
        if (const Result<void> added = add_store(folder.root, names); !added) {
            return added.error();
        }
    } else {
        const boost::json::object owner = owner_document(folder);
        if (!job.weights_sha256.empty() && sha256_in(owner) != job.weights_sha256) {
            return std::optional<ArtifactFolder>();
        }
        add_export(owner, names);
        if (const auto spec = api::parse_job_spec(job.resolved_spec_json)) {
            add_sinks(folder, spec->metrics, names);
        }
    }
    std::ranges::copy_if(names, std::back_inserter(folder.files), is_plain);
    return std::optional(std::move(folder));
}

Result<std::vector<ArtifactEntry>> list_artifacts(const ArtifactFolder& folder) {
    std::set<std::pair<std::string, bool>> entries;
    for (const std::string& name : folder.files) {
        const auto file = open_plain(folder, name);
        if (!file) {
            return file.error();
        }
        if (!*file) {
            continue;
        }
        entries.emplace(name, false);
        for (auto slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
            entries.emplace(name.substr(0, slash), true);
        }
    }
    std::vector<ArtifactEntry> listed;
    for (const auto& [name, is_folder] : entries) {
        listed.push_back({name, is_folder});
    }
    return listed;
}

std::string ArtifactFile::read(std::size_t limit) {
    std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(limit, size - done_)), '\0');
    if (read_at(descriptor_.get(), std::as_writable_bytes(std::span(bytes)), done_) < bytes.size()) {
        throw ErrorException(errno == 0 ? io_error(name_ + " has become shorter while it was read")
                                        : cannot_read(name_, std::error_code(errno, std::system_category())));
    }
    done_ += bytes.size();
    return bytes;
}

Result<std::optional<ArtifactFile>> open_artifact(const ArtifactFolder& folder, const std::string& name) {
    if (!std::ranges::binary_search(folder.files, name)) {
        return std::optional<ArtifactFile>();
    }
    return open_plain(folder, name);
}

}  // namespace distilld
