#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/json_text.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"
#include "server/cli/commands.hpp"

namespace distilld::cli {
namespace {

constexpr std::size_t kMaxDepth = 4;

int wrong_usage(const std::string& message) {
    std::fprintf(stderr, "distilld tokenize: %s\n", message.c_str());
    return kWrongUsage;
}

std::string encoded(const Tokenizer& tokenizer, const std::string& line) {
    std::string text = "[";
    for (const std::int32_t id : tokenizer.encode(line)) {
        text += text.size() == 1 ? "" : ",";
        text += std::to_string(id);
    }
    return text + "]";
}

/// Decodes a JSON array of ids.
Result<std::string> decoded(const Tokenizer& tokenizer, const std::string& line) {
    const auto value = parse_json_text(line, kMaxDepth);
    std::vector<std::int32_t> ids;
    bool good = value && value->is_array();
    if (good) {
        for (const boost::json::value& id : value->get_array()) {
            good = good && id.is_int64() && id.get_int64() >= 0 && id.get_int64() < tokenizer.vocabulary_size();
            ids.push_back(good ? static_cast<std::int32_t>(id.get_int64()) : 0);
        }
    }
    if (!good) {
        return invalid_input("is not a JSON array of ids from 0 to " + std::to_string(tokenizer.vocabulary_size() - 1));
    }
    return tokenizer.decode(ids);
}

}  // namespace

int execute(const TokenizeCommand& command) {
    const Result<std::unique_ptr<Tokenizer>> tokenizer = load_tokenizer(command.folder);
    if (!tokenizer) {
        return wrong_usage(tokenizer.error().message);
    }
    if (*tokenizer == nullptr) {
        return wrong_usage(command.folder.string() + ": has no tokenizer.json");
    }
    std::ios::sync_with_stdio(false);
    std::string line;
    for (std::size_t number = 1; std::getline(std::cin, line); ++number) {
        if (!command.decode) {
            std::cout << encoded(**tokenizer, line) << '\n';
        } else if (const Result<std::string> text = decoded(**tokenizer, line)) {
            std::cout << *text << '\n';
        } else {
            std::cout.flush();
            return wrong_usage("line " + std::to_string(number) + " " + text.error().message);
        }
        // A client that writes line by line also reads line by line.
        if (std::cin.rdbuf()->in_avail() <= 0 && !std::cout.flush()) {
            break;
        }
    }
    if (!std::cout.flush()) {
        std::fprintf(stderr, "distilld tokenize: the output cannot be written\n");
        return kFailed;
    }
    return 0;
}

}  // namespace distilld::cli
