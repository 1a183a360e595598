"""Attribution methods of this and other libraries: one protocol, adapters, and the calls of Captum and Quantus."""
