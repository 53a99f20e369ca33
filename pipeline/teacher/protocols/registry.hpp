#pragma once

#include <span>
#include <string>
#include <string_view>

#include "pipeline/core/teacher_protocol.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"
#include "pipeline/teacher/protocols/server_signs.hpp"

namespace distilld {

/// Another, cheaper protocol of the same servers, if its page exists.
struct CheaperProtocol {
    TeacherProtocol protocol = TeacherProtocol::automatic;
    /// Whether the server has the page `target`; null if there is no such protocol.
    boost::asio::awaitable<FetchResult<bool>> (*is_there)(ProbeDialogue& dialogue, std::string target) = nullptr;
};

/// One supported protocol.
struct TeacherProtocolRow {
    TeacherProtocol protocol;
    std::string_view name;
    /// Path for URLs without one. `{model}` stands for the model's name.
    std::string_view default_path;
    MakeProtocolAdapter make_adapter;
    /// Completes the shortened path of an endpoint's URL; null: paths are unchanged.
    std::string (*complete_path)(std::string path) = nullptr;
    /// Whether a server with these signs speaks it, for protocol "auto"; null: only used by name.
    bool (*is_spoken_by)(const ServerSigns& signs) = nullptr;
    /// Whether the protocol supports hidden states.
    bool has_hidden_states = false;
    /// The protocol that "auto" prefers to this one.
    CheaperProtocol cheaper{};
    /// Whether the protocol has named tensors, for teachers of samples.
    bool has_samples = false;
};

/// One row per value of TeacherProtocol.
[[nodiscard]] std::span<const TeacherProtocolRow> teacher_protocols() noexcept;

/// The row of `protocol`; null if it is not among `rows`.
[[nodiscard]] const TeacherProtocolRow* find_protocol(std::span<const TeacherProtocolRow> rows,
                                                      TeacherProtocol protocol) noexcept;

/// The row's default path for a model, percent-encoded.
[[nodiscard]] std::string default_path_for(const TeacherProtocolRow& row, std::string_view model);

}  // namespace distilld
