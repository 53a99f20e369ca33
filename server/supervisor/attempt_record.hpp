#pragma once

#include <cstdint>
#include <string>

namespace distilld {

/// What the service stores about an attempt that may outlive it. One executor.
class AttemptRecord {
  public:
    struct Stored {
        std::string token_hash;      ///< empty: none
        std::string place;           ///< the launcher's name for it; empty: unknown
        std::uint64_t received = 0;  ///< number of the last message of its relay
    };
    virtual ~AttemptRecord() = default;

    [[nodiscard]] virtual Stored stored() const = 0;

    // --- on disk on return; false: the store cannot be written ---
    [[nodiscard]] virtual bool set_token(std::string token_hash) = 0;
    [[nodiscard]] virtual bool set_place(std::string place) = 0;

    /// All that is recorded from here to end_message() comes from message `number`, and is stored with it, in one
    /// transaction. Without end_message(), the job's next state is part of it.
    virtual void begin_message(std::uint64_t number) = 0;
    virtual void end_message() = 0;
    /// Stores what still waits. Call it after messages that record no event.
    virtual void save() = 0;
    /// Number of the last message that is on disk with all that came from it.
    [[nodiscard]] virtual std::uint64_t saved() const = 0;
};

}  // namespace distilld
