#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "base/json_text.hpp"
#include "server/cli/commands.hpp"
#include "server/security/key_file.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;

int failed(const Error& error) {
    std::fprintf(stderr, "distilld keys: %s\n", error.message.c_str());
    return error.kind == ErrorKind::invalid_input ? kWrongUsage : kFailed;
}

std::string as_json(const std::vector<ApiKey>& keys) {
    json::array list;
    for (const ApiKey& key : keys) {
        json::object one{
            {"id", key.id}, {"name", key.name}, {"role", to_string(key.role)}, {"created_at", key.created_at}};
        one["last_used"] = nullptr;
        if (!key.last_used.empty()) {
            one["last_used"] = key.last_used;
        }
        list.push_back(std::move(one));
    }
    return to_text(list) + "\n";
}

std::string as_table(const std::vector<ApiKey>& keys) {
    constexpr std::size_t kColumns = 5;
    std::vector<std::array<std::string, kColumns>> rows{{"NAME", "ROLE", "CREATED", "LAST USED", "ID"}};
    for (const ApiKey& key : keys) {
        rows.push_back(
            {key.name, to_string(key.role), key.created_at, key.last_used.empty() ? "never" : key.last_used, key.id});
    }
    std::array<std::size_t, kColumns> widths{};
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < kColumns; ++i) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string text;
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < kColumns; ++i) {
            text += row[i];
            text += i + 1 < kColumns ? std::string(widths[i] - row[i].size() + 2, ' ') : "\n";
        }
    }
    return text;
}

int add(const KeysCommand& command) {
    const auto made = KeyFile(command.data_dir).add(command.name, command.role);
    if (!made) {
        return failed(made.error());
    }
    // Only the key goes to stdout, for scripts; notes for people go to stderr.
    print(made->secret + "\n");
    std::fprintf(stderr, "%s is the key '%s' (%s). It is shown only once: keep it where others cannot read it.\n",
                 made->key.id.c_str(), made->key.name.c_str(), to_string(made->key.role));
    return kDone;
}

}  // namespace

int execute(const KeysCommand& command) {
    if (command.action == KeysCommand::Action::add) {
        return add(command);
    }
    const KeyFile file(command.data_dir);
    if (command.action == KeysCommand::Action::revoke) {
        const auto revoked = file.revoke(command.name);
        return revoked ? kDone : failed(revoked.error());
    }
    const auto known = file.read();
    if (!known) {
        return failed(known.error());
    }
    print(command.json ? as_json(*known) : as_table(*known));
    return kDone;
}

}  // namespace distilld::cli
