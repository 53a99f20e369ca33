#include "pipeline/teacher/protocols/adapters.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "pipeline/teacher/protocols/server_signs.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

/// The part of a row's default path before the model's name; empty if the path names no model.
std::string_view before_model(const TeacherProtocolRow& row) {
    const std::size_t at = row.default_path.find("{model}");
    return at == std::string_view::npos ? std::string_view() : row.default_path.substr(0, at);
}

/// Whether the path names the model in the form of the row's default path.
bool names_model(const TeacherProtocolRow& row, const std::string& path) {
    return !before_model(row).empty() && path.find(before_model(row)) != std::string::npos;
}

/// Servers that list models as OpenAI does but report no log-probabilities of a prompt, by the owner of their models.
struct KnownServer {
    std::string_view owner;
    std::string_view name;
};
constexpr std::array kKnownServers{
    KnownServer{"llamacpp", "a llama.cpp server, which does not report log-probabilities of prompt tokens"},
    KnownServer{"library", "an Ollama server, which does not report log-probabilities of prompt tokens"},
};

std::string what_it_is(const ServerSigns& signs) {
    for (const KnownServer& known : kKnownServers) {
        if (signs.lists_model_of(known.owner)) {
            return std::string(known.name);
        }
    }
    return "an OpenAI-style server of an unknown kind (models " + names_of(*signs.models) + ")";
}

class AutomaticAdapter final : public TeacherProtocolAdapter {
  public:
    AutomaticAdapter(ProtocolSettings settings, std::span<const TeacherProtocolRow> rows)
        : settings_(std::move(settings)), rows_(rows), root_(root_of(settings_.url.path, rows)) {}

    /// The codec of the default protocol, until the endpoint has been identified.
    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        auto adapter = adapter_of(*find_protocol(rows_, kDefaultTeacherProtocol));
        if (!adapter) {
            return adapter.error();
        }
        return (*adapter)->assumed_codec(wanted);
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted wanted) const override {
        const auto signs = co_await ask_for_signs(dialogue, root_, settings_.url.query);
        if (!signs) {
            co_return failed_probe(signs.error());
        }
        const auto spoken = std::find_if(rows_.begin(), rows_.end(), [&](const TeacherProtocolRow& row) {
            return row.is_spoken_by != nullptr && row.is_spoken_by(*signs);
        });
        if (spoken == rows_.end()) {
            co_return failed_probe({FailureKind::rejected,
                                    dialogue.page(root_) + " looks like " + what_it_is(*signs) +
                                        "; see /teacher/protocol for the supported protocols",
                                    std::nullopt});
        }
        const TeacherProtocolRow* row = &*spoken;
        if (row->cheaper.is_there != nullptr) {
            const TeacherProtocolRow* cheaper = find_protocol(rows_, row->cheaper.protocol);
            const std::string target = root_ + std::string(cheaper->default_path) + settings_.url.query;
            const auto there = co_await row->cheaper.is_there(dialogue, target);
            if (!there) {
                co_return failed_probe(there.error());
            }
            row = *there ? cheaper : row;
        }
        const auto adapter = adapter_of(*row);
        if (!adapter) {
            co_return failed_probe({FailureKind::rejected, adapter.error().message, std::nullopt});
        }
        co_return co_await (*adapter)->negotiate(dialogue, wanted);
    }

  private:
    [[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> adapter_of(const TeacherProtocolRow& row) const {
        ProtocolSettings settings = settings_;
        std::string& path = settings.url.path;
        if (!names_model(row, path)) {
            path = root_ + default_path_for(row, settings_.model);
        }
        if (row.complete_path != nullptr) {
            path = row.complete_path(std::move(path));
        }
        return row.make_adapter(settings);
    }

    ProtocolSettings settings_;
    std::span<const TeacherProtocolRow> rows_;
    std::string root_;
};

}  // namespace

std::string root_of(std::string path, std::span<const TeacherProtocolRow> rows) {
    for (const TeacherProtocolRow& row : rows) {
        if (names_model(row, path)) {
            return path.substr(0, path.rfind(before_model(row)));
        }
    }
    while (path.ends_with('/')) {
        path.pop_back();
    }
    for (const TeacherProtocolRow& row : rows) {
        std::string_view page = row.default_path;
        page.remove_suffix(page.ends_with('/') ? 1 : 0);
        if (!page.empty() && path.ends_with(page)) {
            return path.substr(0, path.size() - page.size());
        }
    }
    constexpr std::string_view kBase = "/v1";
    return path.ends_with(kBase) ? path.substr(0, path.size() - kBase.size()) : path;
}

Result<std::unique_ptr<TeacherProtocolAdapter>> make_automatic_adapter(const ProtocolSettings& settings,
                                                                       std::span<const TeacherProtocolRow> rows) {
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<AutomaticAdapter>(settings, rows));
}

}  // namespace distilld
