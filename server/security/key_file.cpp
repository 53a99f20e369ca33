#include "server/security/key_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <set>
#include <system_error>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/folder_lock.hpp"
#include "base/hex.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{4} << 20U;
constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxKeys = 4096;
constexpr std::size_t kHashDigits = 64;
constexpr int kVersion = 1;

Result<ApiKey> read_key(const json::value& value, const JsonPlace& place) {
    if (!value.is_object()) {
        return invalid_input(place.message("is not an object"));
    }
    ApiKey key;
    std::string role;
    JsonMembers members(value.get_object(), place);
    members.require("id").require("name").require("role").require("sha256");
    members.text("id", key.id);
    members.text("name", key.name);
    members.text("role", role);
    members.text("sha256", key.sha256);
    members.text("created_at", key.created_at);
    members.text("last_used", key.last_used);
    if (members.failed()) {
        return members.error();
    }
    const auto known = enum_from_string<http::Role>(role);
    if (!known) {
        return invalid_input(place.at("role").message("is '" + role + "': expected read, submit or admin"));
    }
    key.role = *known;
    if (key.id.empty()) {
        return invalid_input(place.at("id").message("is empty"));
    }
    if (!is_key_name(key.name)) {
        return invalid_input(place.at("name").message("is not a name of a key"));
    }
    if (key.sha256.size() != kHashDigits || !is_hex(key.sha256)) {
        return invalid_input(place.at("sha256").message("is not a SHA-256"));
    }
    return key;
}

Result<std::vector<ApiKey>> parse_keys(const std::string& text, const std::string& file) {
    const auto parsed = parse_json_text(text, kMaxDepth);
    if (!parsed) {
        return invalid_input(file + ": is not JSON: " + parsed.error().reason);
    }
    const auto* document = parsed->if_object();
    const auto* list = document == nullptr ? nullptr : document->if_contains("keys");
    if (list == nullptr || !list->is_array()) {
        return invalid_input(file + ": /keys: expected a list of keys");
    }
    std::vector<ApiKey> keys;
    std::set<std::string> names;
    std::set<std::string> ids;
    for (const json::value& entry : list->get_array()) {
        auto key = read_key(entry, JsonPlace{file, "/keys/" + std::to_string(keys.size())});
        if (!key) {
            return key.error();
        }
        if (!names.insert(key->name).second) {
            return invalid_input(file + ": /keys: two keys are called '" + key->name + "'");
        }
        if (!ids.insert(key->id).second) {
            return invalid_input(file + ": /keys: two keys have the id '" + key->id + "'");
        }
        keys.push_back(std::move(*key));
    }
    return keys;
}

std::string text_of(const std::vector<ApiKey>& keys) {
    json::array list;
    for (const ApiKey& key : keys) {
        json::object one{{"id", key.id},
                         {"name", key.name},
                         {"role", to_string(key.role)},
                         {"sha256", key.sha256},
                         {"created_at", key.created_at}};
        one["last_used"] = nullptr;
        if (!key.last_used.empty()) {
            one["last_used"] = key.last_used;
        }
        list.push_back(std::move(one));
    }
    return to_text(json::object{{"version", kVersion}, {"keys", std::move(list)}}) + "\n";
}

/// For root, who creates keys for a service that runs as another user and owns the folder.
void give_to_owner_of(const fs::path& folder, const fs::path& file) {
    struct stat owner{};
    if (::geteuid() == 0 && ::stat(folder.c_str(), &owner) == 0) {
        [[maybe_unused]] const int changed = ::lchown(file.c_str(), owner.st_uid, owner.st_gid);
    }
}

Result<FolderLock> lock(const fs::path& folder) {
    auto got = FolderLock::try_lock_file(folder, LockShare::exclusive, "keys.lock", std::chrono::seconds(5));
    if (!got) {
        return got.error();
    }
    if (!*got) {
        return io_error((folder / "keys.lock").string() + ": another process has held the lock for five seconds");
    }
    give_to_owner_of(folder, folder / "keys.lock");
    return std::move(**got);
}

}  // namespace

KeyFile::KeyFile(fs::path data_dir) : folder_(fs::absolute(std::move(data_dir))), path_(folder_ / "keys.json") {}

Result<std::vector<ApiKey>> KeyFile::read() const {
    std::error_code unknown;
    if (fs::symlink_status(path_, unknown).type() == fs::file_type::not_found) {
        return std::vector<ApiKey>();
    }
    const auto text = read_text_file(path_, kMaxFileBytes);
    if (!text) {
        return text.error();
    }
    return parse_keys(*text, path_.string());
}

template <class Change>
Result<void> KeyFile::change(Change change) const {
    auto locked = lock(folder_);
    if (!locked) {
        return locked.error();
    }
    auto keys = read();
    if (!keys) {
        return keys.error();
    }
    if (auto changed = change(*keys); !changed) {
        return changed;
    }
    return write_file_atomically(path_, text_of(*keys), FileAccess::folder_owner);
}

Result<NewApiKey> KeyFile::add(const std::string& name, http::Role role) const {
    if (!is_key_name(name)) {
        return invalid_input("'" + name + "' is not a name of a key: 1 to 64 letters, digits and . _ - are");
    }
    if (name == kAdminKeyName) {
        return invalid_input(std::string("'") + kAdminKeyName + "' is the name of the key that " + kAdminKeyVariable +
                             " holds: take another name");
    }
    std::error_code failed;
    fs::create_directories(folder_, failed);
    if (failed) {
        return io_error("cannot make the data folder " + folder_.string() + ": " + failed.message());
    }
    NewApiKey made = make_api_key(name, role);
    const auto append = [&made](std::vector<ApiKey>& keys) -> Result<void> {
        if (std::ranges::any_of(keys, [&made](const ApiKey& key) { return key.name == made.key.name; })) {
            return invalid_input("there is a key '" + made.key.name + "' already: revoke it, or take another name");
        }
        if (keys.size() >= kMaxKeys) {
            return invalid_input("there are " + std::to_string(kMaxKeys) + " keys, which is the limit");
        }
        keys.push_back(made.key);
        return {};
    };
    if (auto added = change(append); !added) {
        return added.error();
    }
    return made;
}

Result<void> KeyFile::revoke(const std::string& name) const {
    const auto nothing = [this, &name] { return invalid_input(path_.string() + ": there is no key '" + name + "'"); };
    std::error_code unknown;
    if (!fs::exists(path_, unknown)) {
        return nothing();
    }
    return change([&](std::vector<ApiKey>& keys) -> Result<void> {
        const auto gone = std::erase_if(keys, [&name](const ApiKey& key) { return key.name == name; });
        return gone > 0 ? Result<void>() : nothing();
    });
}

Result<void> KeyFile::note_use(const std::map<std::string, std::string>& last_used) const {
    return change([&last_used](std::vector<ApiKey>& keys) -> Result<void> {
        for (ApiKey& key : keys) {
            const auto used = last_used.find(key.id);
            if (used != last_used.end() && used->second > key.last_used) {
                key.last_used = used->second;
            }
        }
        return {};
    });
}

}  // namespace distilld
