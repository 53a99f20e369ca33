#include "models/weights/weight_folder.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "base/files/files.hpp"
#include "base/json_text.hpp"
#include "base/sha256.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{100} << 20;

/// A shard must be in the index's folder: a name with a folder in it could point outside.
bool is_plain_file_name(const std::string& name) {
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

Result<WeightFolder> WeightFolder::open(const fs::path& folder, const NamePrefix& names) {
    std::error_code ignored;
    const fs::path single = folder / "model.safetensors";
    const fs::path index = folder / "model.safetensors.index.json";
    WeightFolder weights(folder);
    Result<void> opened;
    if (fs::exists(single, ignored)) {
        opened = weights.open_single(single);
    } else if (fs::exists(index, ignored)) {
        opened = weights.open_shards(index);
    } else {
        opened = invalid_input(folder.string() + ": has neither model.safetensors nor model.safetensors.index.json");
    }
    if (!opened) {
        return opened.error();
    }
    weights.put_in_front(names);
    return weights;
}

void WeightFolder::put_in_front(const NamePrefix& names) {
    if (names.prefix.empty() ||
        std::ranges::any_of(file_of_, [&](const auto& place) { return place.first.starts_with(names.prefix); })) {
        return;
    }
    std::map<std::string, std::size_t> renamed;
    for (const auto& [name, file] : file_of_) {
        if (name == names.except) {
            renamed.emplace(name, file);
        } else {
            renamed.emplace(names.prefix + name, file);
            shortened_.emplace(names.prefix + name, name);
        }
    }
    file_of_ = std::move(renamed);
}

const std::string& WeightFolder::name_in_file(const std::string& name) const {
    const auto found = shortened_.find(name);
    return found == shortened_.end() ? name : found->second;
}

Result<void> WeightFolder::open_single(const fs::path& path) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) {
        return file.error();
    }
    for (const std::string& name : file->names()) {
        file_of_.emplace(name, 0);
    }
    files_.push_back(std::move(*file));
    return {};
}

Result<void> WeightFolder::open_shards(const fs::path& index) {
    const Result<std::string> text = read_text_file(index, kMaxIndexBytes);
    if (!text) {
        return text.error();
    }
    boost::system::error_code code;
    const json::value parsed = json::parse(*text, code);
    if (code) {
        return invalid_input(index.string() + ": not JSON (" + code.message() + ")");
    }
    const json::object* object = parsed.if_object();
    const json::value* map = object == nullptr ? nullptr : object->if_contains("weight_map");
    if (map == nullptr || !map->is_object()) {
        return invalid_input(index.string() + ": has no weight_map object");
    }
    std::map<std::string, std::size_t> opened;
    for (const auto& [key, value] : map->get_object()) {
        const std::string name(key);
        if (!value.is_string()) {
            return invalid_input(index.string() + ": weight_map." + name + " is not a file name");
        }
        const std::string file_name(value.get_string());
        if (!is_plain_file_name(file_name)) {
            return invalid_input(index.string() + ": weight_map." + name + " is " + to_text(value) +
                                 ", a file name without a folder is expected");
        }
        auto found = opened.find(file_name);
        if (found == opened.end()) {
            Result<SafetensorsFile> file = SafetensorsFile::open(folder_ / file_name);
            if (!file) {
                return file.error();
            }
            found = opened.emplace(file_name, files_.size()).first;
            files_.push_back(std::move(*file));
        }
        if (!files_[found->second].contains(name)) {
            return invalid_input(index.string() + ": tensor " + name + " is not in " + file_name);
        }
        file_of_.emplace(name, found->second);
    }
    for (const SafetensorsFile& file : files_) {
        for (const std::string& name : file.names()) {
            if (!file_of_.contains(name)) {
                return invalid_input(file.path().string() + ": tensor " + name + " is not in the weight_map of " +
                                     index.string());
            }
        }
    }
    return {};
}

std::vector<std::string> WeightFolder::names() const {
    std::vector<std::string> names;
    names.reserve(file_of_.size());
    for (const auto& [name, file] : file_of_) {
        names.push_back(name);
    }
    return names;
}

Result<std::string> WeightFolder::hash() const {
    std::map<std::string, fs::path> paths;
    for (const SafetensorsFile& file : files_) {
        paths.emplace(file.path().filename().string(), file.path());
    }
    Sha256 all;
    for (const auto& [name, path] : paths) {
        const Result<std::string> one = sha256_file(path);
        if (!one) {
            return one.error();
        }
        all.add(std::span<const char>(*one));
    }
    return all.hex();
}

const SafetensorsFile* WeightFolder::file_of(const std::string& name) const {
    const auto found = file_of_.find(name);
    return found == file_of_.end() ? nullptr : &files_[found->second];
}

}  // namespace distilld::models
