"""Commands that ask the model beside the conversation."""
